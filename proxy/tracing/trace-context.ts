/**
 * Which trace does a request belong to? Reads what a client says of it, and makes identifiers where it says nothing that can be read. Pure but for the randomness.
 * @see https://www.w3.org/TR/trace-context/#traceparent-header
 */
import { randomBytes } from 'node:crypto'

/** Where a span hangs. */
export interface TraceParent {
  /** 32 hexadecimal digits in lower case, not all zero. */
  readonly traceId: string
  /** 16 of them. */
  readonly parentId: string
}

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$/
/** A later version may say more behind what this one says; no reader needs more than this of it. */
const MAX_CHARACTERS = 512

/**
 * The value of one `traceparent`; `undefined` for none and for one that can't be read, which then starts no trace and joins none. Whether the client
 * sampled is not read: what a sandbox sends does not decide how much is traced.
 */
export function parseTraceparent(value: string | undefined): TraceParent | undefined {
  if (value === undefined || value.length > MAX_CHARACTERS) return undefined
  const [, version, traceId = '', parentId = '', more] = TRACEPARENT.exec(value) ?? []
  if (version === undefined || version === 'ff' || (version === '00' && more !== undefined)) return undefined
  if (/^0+$/.test(traceId) || /^0+$/.test(parentId)) return undefined
  return { traceId, parentId }
}

/** A trace of one's own. */
export function newTraceId(): string {
  return newId(16)
}

/** For a span. */
export function newSpanId(): string {
  return newId(8)
}

/** All zeros would be no identifier; chance gives that never, and then it is made again. */
function newId(bytes: number): string {
  const id = randomBytes(bytes).toString('hex')
  return /^0+$/.test(id) ? newId(bytes) : id
}
