/** Requests with a short JSON reply, and what to make of a refusal. */
import type { SandboxError } from '../sandbox-error.ts'
import type { WorkerBytes } from '../worker-client.ts'
import { exchange, lost, type ExchangeRequest, type Link, type Reply } from './exchange.ts'
import { malformed, parseError } from './lines.ts'

const MAX_REPLY_BYTES = 256 * 1024
/** Bytes of one piece of a body. */
const PIECE_BYTES = 64 * 1024

/** Which error a refusal becomes. */
export type FaultMaker = (code: string, message: string) => SandboxError

/** Sends a request; resolves to the object that comes back, an empty one for an empty reply. @throws what `fault` makes of a refusal */
export async function call(link: Link, fault: FaultMaker, request: ExchangeRequest): Promise<Record<string, unknown>> {
  const reply = await exchange(link, request)
  if (reply.status !== 200 && reply.status !== 204) throw await refuse(reply, fault)
  return readObject(reply)
}

/** A request whose reply says nothing but that it was done. */
export async function act(link: Link, fault: FaultMaker, request: ExchangeRequest): Promise<void> {
  await call(link, fault, request)
}

/** The error of a reply that is a refusal. */
export async function refuse(reply: Reply, fault: FaultMaker): Promise<SandboxError> {
  const { error } = await readObject(reply)
  const { code, error: message } = parseError(
    typeof error === 'object' && error !== null ? (error as Record<string, unknown>) : {},
  )
  return code === 'unauthorized'
    ? lost(new Error('the worker does not know the bearer'), 'known')
    : fault(code, message)
}

/** A JSON body with its head. */
export function jsonBody(value: object): Pick<ExchangeRequest, 'headers' | 'body'> {
  const bytes = Buffer.from(JSON.stringify(value))
  return { headers: { 'content-type': 'application/json', 'content-length': String(bytes.length) }, body: [bytes] }
}

/** The bytes of a content, in pieces that do not fill the memory twice. */
export async function* bytesOf(content: WorkerBytes): AsyncGenerator<Uint8Array> {
  if (typeof content !== 'string' && !(content instanceof Uint8Array)) {
    yield* content
    return
  }
  const bytes = typeof content === 'string' ? Buffer.from(content) : content
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES)
}

async function readObject(reply: Reply): Promise<Record<string, unknown>> {
  const pieces: Buffer[] = []
  let size = 0
  for await (const chunk of reply.chunks()) {
    size += chunk.length
    if (size > MAX_REPLY_BYTES) throw malformed('a reply is too long')
    pieces.push(chunk)
  }
  if (size === 0) return {}
  let value: unknown
  try {
    value = JSON.parse(Buffer.concat(pieces).toString('utf8'))
  } catch {
    throw malformed('a reply is not JSON')
  }
  if (typeof value !== 'object' || value === null) throw malformed('a reply is not an object')
  return value as Record<string, unknown>
}
