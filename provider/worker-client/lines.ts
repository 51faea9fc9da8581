/** Lines of JSON from a worker, which is not trusted: of bounded length, of known shape, or the connection counts as lost. */
import type { ErrorEvent, ListEvent, LostEvent, OutputEvent, ResultEvent, WireEvent } from '../worker/wire.ts'
import { MAX_LINE_BYTES } from '../worker/wire.ts'
import { lost } from './exchange.ts'

const MAX_TEXT_LENGTH = 500

/** Each whole line of a stream; what follows the last line feed is a fault. */
export async function* jsonLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<Record<string, unknown>> {
  let rest: Buffer = Buffer.alloc(0)
  for await (const chunk of chunks) {
    const all = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    let start = 0
    for (let end = all.indexOf(10); end >= 0; end = all.indexOf(10, start)) {
      yield parseLine(all.subarray(start, end))
      start = end + 1
    }
    rest = all.subarray(start)
    if (rest.length > MAX_LINE_BYTES) throw malformed('a line is too long')
  }
  if (rest.length > 0) throw malformed('the last line is not whole')
}

/** One event of a command. */
export function parseEvent(line: Record<string, unknown>): WireEvent {
  switch (line['type']) {
    case 'ping':
      return { type: 'ping' }
    case 'stdout_delta':
    case 'stderr_delta': {
      if (typeof line['data'] !== 'string') throw malformed('output without data')
      const encoding = line['encoding']
      if (encoding !== undefined && encoding !== 'base64') throw malformed('output in an unknown encoding')
      return {
        type: line['type'],
        data: line['data'],
        ...(encoding !== undefined && { encoding }),
      } satisfies OutputEvent
    }
    case 'lost': {
      if (line['stream'] !== 'stdout' && line['stream'] !== 'stderr') throw malformed('a gap in no stream')
      return { type: 'lost', stream: line['stream'], bytes: count(line, 'bytes') } satisfies LostEvent
    }
    case 'result':
      return parseResult(line)
    case 'error':
      return parseError(line)
  }
  throw malformed('an unknown event')
}

/** One entry of a list. */
export function parseListEvent(line: Record<string, unknown>): ListEvent | { readonly type: 'ping' } {
  switch (line['type']) {
    case 'ping':
      return { type: 'ping' }
    case 'file': {
      const { path } = line
      if (typeof path !== 'string' || !path.startsWith('/') || path.includes('\0'))
        throw malformed('a file without a path')
      return { type: 'file', path, size: count(line, 'size') }
    }
    case 'end':
      return { type: 'end', count: count(line, 'count') }
    case 'error':
      return parseError(line)
  }
  throw malformed('an unknown entry')
}

/** A code and a message, cut and cleaned. */
export function parseError(fields: Record<string, unknown>): ErrorEvent {
  const { code, error = fields['message'] } = fields
  return {
    type: 'error',
    code: typeof code === 'string' && /^[A-Za-z0-9_]{1,40}$/.test(code) ? code : 'internal',
    error:
      typeof error === 'string'
        ? error.slice(0, MAX_TEXT_LENGTH).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\u{FFFD}')
        : 'it gives no reason',
  }
}

/** A count: a whole number, not negative. */
export function count(fields: Record<string, unknown>, name: string): number {
  const value = fields[name]
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) throw malformed(`\`${name}\` is no count`)
  return value
}

/** Cause of an error: somebody answered, and not as a worker does. */
export class MalformedReply extends Error {}

/** A reply that makes no sense leaves open what happened. */
export function malformed(what: string): Error {
  return lost(new MalformedReply(`the worker's reply makes no sense: ${what}`))
}

function parseResult(line: Record<string, unknown>): ResultEvent {
  const { signal, timedOut } = line
  const exitCode = count(line, 'exitCode')
  if (exitCode > 255) throw malformed('`exitCode` is no exit code')
  if (signal !== undefined && !(typeof signal === 'string' && /^SIG[A-Z0-9]{1,12}$/.test(signal)))
    throw malformed('`signal` is no signal')
  if (typeof timedOut !== 'boolean') throw malformed('`timedOut` is missing')
  return {
    type: 'result',
    exitCode,
    ...(signal !== undefined && { signal }),
    timedOut,
    durationMs: count(line, 'durationMs'),
    ...(line['stdoutTruncated'] !== undefined && { stdoutTruncated: count(line, 'stdoutTruncated') }),
    ...(line['stderrTruncated'] !== undefined && { stderrTruncated: count(line, 'stderrTruncated') }),
  }
}

function parseLine(bytes: Buffer): Record<string, unknown> {
  let value: unknown
  try {
    value = JSON.parse(bytes.toString('utf8'))
  } catch {
    throw malformed('a line is not JSON')
  }
  if (typeof value !== 'object' || value === null) throw malformed('a line is not an object')
  return value as Record<string, unknown>
}
