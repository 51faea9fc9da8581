/** The JSON of plain data that may hold long lists, in small steps. */
import type { Steps } from './steps.ts'

/** Members of a list that are written at once: texts and numbers, and what is larger. */
const A_STEP = 2000
const A_STEP_OF_MAPS = 50
const LONG_PIECE = 1000

/** The same text as `JSON.stringify`. What stands inside of a list is written in one step with its neighbours. */
export function* jsonSteps(value: unknown): Steps<string> {
  let text = ''
  for (const piece of jsonPieces(value)) {
    text += piece
    if (piece.length > LONG_PIECE) yield
  }
  return text
}

/** The same as a row of texts. */
export function* jsonPieces(value: unknown): Generator<string, void, undefined> {
  if (Array.isArray(value)) yield* listPieces(value)
  else if (typeof value !== 'object' || value === null || 'toJSON' in value)
    yield isNothing(value) ? 'null' : JSON.stringify(value)
  else {
    let before = '{'
    for (const [key, member] of Object.entries(value)) {
      if (isNothing(member)) continue
      yield `${before}${JSON.stringify(key)}:`
      yield* jsonPieces(member)
      before = ','
    }
    yield before === '{' ? '{}' : '}'
  }
}

function* listPieces(list: readonly unknown[]): Generator<string, void, undefined> {
  const atOnce = typeof list[0] === 'object' ? A_STEP_OF_MAPS : A_STEP
  let before = '['
  for (let at = 0; at < list.length; at += atOnce) {
    yield before + JSON.stringify(list.slice(at, at + atOnce)).slice(1, -1)
    before = ','
  }
  yield before === '[' ? '[]' : ']'
}

/** What JSON leaves out of a map. */
function isNothing(value: unknown): boolean {
  return value === undefined || typeof value === 'function' || typeof value === 'symbol'
}
