/** The JSON of plain data that may hold long lists, in small steps. */
import type { Steps } from './steps.ts'

/** Members of a list that are written at once: texts and numbers, and what is larger. */
const A_STEP = 2000
const A_STEP_OF_MAPS = 50

/** The same text as `JSON.stringify`. What stands inside of a list is written in one step with its neighbours. */
export function* jsonSteps(value: unknown): Steps<string> {
  return (yield* pieces(value)) ?? 'null'
}

function* pieces(value: unknown): Steps<string | undefined> {
  if (Array.isArray(value)) return yield* listPieces(value)
  if (typeof value !== 'object' || value === null || 'toJSON' in value) return JSON.stringify(value)
  const members: string[] = []
  for (const [key, member] of Object.entries(value)) {
    const text = yield* pieces(member)
    if (text !== undefined) members.push(`${JSON.stringify(key)}:${text}`)
  }
  return `{${members.join(',')}}`
}

function* listPieces(list: readonly unknown[]): Steps<string> {
  const atOnce = typeof list[0] === 'object' ? A_STEP_OF_MAPS : A_STEP
  let text = '['
  for (let at = 0; at < list.length; at += atOnce) {
    if (at > 0) {
      text += ','
      yield
    }
    text += JSON.stringify(list.slice(at, at + atOnce)).slice(1, -1)
  }
  return `${text}]`
}
