/** What is wrong with the shape of data, in words for whoever wrote it. */
import type { z } from 'zod'
import { quoted, type LocatedFault } from './parsed.ts'

/** Unknown keys that are told of at once. */
const MAX_KEYS = 100

/** Every fault of a schema's verdict, of the code `code`; `kinds` says what a `kind` may be, where the data has one. */
export function shapeFaults({ issues }: z.ZodError, code: string, kinds?: string): readonly LocatedFault[] {
  return issues.flatMap((issue) => {
    if (issue.code === 'unrecognized_keys')
      return issue.keys.slice(0, MAX_KEYS).map((key) => ({ ...unknownKey(issue.path, key), code }))
    return [{ path: pathText(issue.path), code, message: messageOf(issue, kinds) }]
  })
}

/** A key that is no plain word is no part of a path. */
function unknownKey(path: readonly PropertyKey[], key: string): Omit<LocatedFault, 'code'> {
  if (/^[\w-]{1,80}$/.test(key)) return { path: pathText([...path, key]), message: 'unknown key' }
  return { path: pathText(path), message: `unknown key ${quoted(key)}` }
}

function messageOf(issue: z.core.$ZodIssue, kinds: string | undefined): string {
  if ('discriminator' in issue && kinds !== undefined) return `expected ${kinds}`
  if (issue.code === 'invalid_type' && issue.message.endsWith('received undefined')) return 'is required'
  const words = issue.message.replace(/^Invalid (?:input|option): /, '')
  return words.charAt(0).toLowerCase() + words.slice(1)
}

function pathText(path: readonly PropertyKey[]): string {
  return path
    .map((part, index) => (typeof part === 'number' ? `[${part}]` : `${index === 0 ? '' : '.'}${String(part)}`))
    .join('')
}
