/** A command as a request describes it: unknown JSON in, something fit to run out. */
import { Fault } from './fault.ts'
import { rawPath } from './path-text.ts'
import type { RunCommand } from './run.ts'

/** A checked request. */
export interface CommandRequest {
  readonly run: RunCommand
  /** Bytes of each stream that are sent or kept; `null` is all, undefined the route's own default. */
  readonly maxOutputBytes: number | null | undefined
  /** What the command reads, when it came with the JSON. */
  readonly stdin: Buffer | undefined
  /** Raw bytes for stdin follow the JSON. */
  readonly stdinFollows: boolean
  /** By which `DELETE /execute/{id}` finds it. */
  readonly id: string | undefined
}

/** What a command starts with when it says nothing. */
export interface CommandDefaults {
  readonly cwd: string
  readonly env: Readonly<Record<string, string>>
}

// Beyond this a timer of Node fires at once.
const MAX_TIMEOUT_MS = 2 ** 31 - 1

/** @throws Fault `bad_request` that names the field */
export function parseCommand(body: unknown, defaults: CommandDefaults): CommandRequest {
  const fields = parseObject(body)
  const command = text(fields, 'command')
  if (command === undefined || command === '') throw bad('`command` is missing')
  const args = fields['args'] ?? undefined
  if (args !== undefined && !(Array.isArray(args) && args.every(isText)))
    throw bad('`args` is not a list of texts without NUL')
  const cwd = text(fields, 'cwd')
  const stdin = text(fields, 'stdin', true)
  const id = text(fields, 'id')
  if (id !== undefined && !/^[A-Za-z0-9_-]{1,64}$/.test(id))
    throw bad('`id` is not 1 to 64 letters, digits, `_` and `-`')
  return {
    run: {
      file: args === undefined ? '/bin/sh' : command,
      args: args ?? ['-c', command],
      cwd: cwd === undefined ? defaults.cwd : workingFolder(cwd, defaults.cwd),
      env: { ...defaults.env, ...parseEnvironment(fields['env']) },
      timeoutMs: integer(fields, 'timeoutMs', 1, MAX_TIMEOUT_MS),
    },
    maxOutputBytes:
      fields['maxOutputBytes'] === null ? null : integer(fields, 'maxOutputBytes', 0, Number.MAX_SAFE_INTEGER),
    stdin:
      stdin === undefined ? undefined : Buffer.from(stdin, fields['stdinEncoding'] === 'base64' ? 'base64' : 'utf8'),
    stdinFollows: fields['stdinFollows'] === true,
    id,
  }
}

/** @throws Fault `bad_request` */
export function parseEnvironment(value: unknown): Readonly<Record<string, string>> {
  if (value === undefined || value === null) return {}
  const entries = Object.entries(parseObject(value, 'env'))
  for (const [name, content] of entries) {
    if (name === '' || /[=\0]/.test(name)) throw bad('`env` has a name that is empty or holds `=` or NUL')
    if (!isText(content)) throw bad('`env` has a value that is not a text without NUL')
  }
  return Object.fromEntries(entries) as Record<string, string>
}

/** @throws Fault `bad_request` */
export function parseObject(value: unknown, name = 'the request'): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw bad(`\`${name}\` is not an object`)
  return value as Record<string, unknown>
}

/** An integer field within bounds, undefined when it is absent. @throws Fault `bad_request` */
export function integer(
  fields: Readonly<Record<string, unknown>>,
  name: string,
  min: number,
  max: number,
): number | undefined {
  const value = fields[name]
  if (value === undefined) return undefined
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value
  throw bad(`\`${name}\` is not a whole number from ${min} to ${max}`)
}

/** A text field without NUL, undefined when it is absent. @throws Fault `bad_request` */
export function text(fields: Readonly<Record<string, unknown>>, name: string, anyBytes = false): string | undefined {
  const value = fields[name] ?? undefined
  if (value === undefined) return undefined
  if (typeof value === 'string' && (anyBytes || isText(value))) return value
  throw bad(`\`${name}\` is not a text without NUL`)
}

function workingFolder(cwd: string, rootDir: string): string {
  if (rawPath(cwd) === undefined || !cwd.isWellFormed()) throw bad('`cwd` must be UTF-8')
  return cwd.startsWith('/') ? cwd : `${rootDir}/${cwd}`
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && !value.includes('\0')
}

function bad(message: string): Fault {
  return new Fault('bad_request', message)
}
