/** Reading a message from a side that may send it in any pieces, and saying the last word to one that is refused. */
import type { Deadlines } from '../deadlines.ts'
import type { Side } from '../relay/side.ts'

/** What a refused client may still send before it is cut off; its answer could be lost in a reset if its bytes were left unread. */
const MAX_LINGER_BYTES = 256 * 1024

/** A message that was read whole, or the client's end instead, and everything that was read. */
export interface Read<M> {
  readonly message: Exclude<M, { readonly state: 'more' }> | { readonly state: 'ended' }
  readonly bytes: Buffer
}

/**
 * Reads until `parse` knows what the bytes are, or the client ends. Not a promise when it is known already. The caller's deadline ends a slow client;
 * `mayGoOn` is asked for every piece after the first, and a client for whom it says no has ended.
 */
export function readMessage<M extends { readonly state: string }>(
  side: Side,
  first: Buffer,
  parse: (bytes: Buffer, seenBytes: number) => M,
  mayGoOn: () => boolean,
): Read<M> | Promise<Read<M>> {
  const message = parse(first, 0)
  return isWhole(message) ? { message, bytes: first } : readOn(side, first, parse, mayGoOn)
}

async function readOn<M extends { readonly state: string }>(
  side: Side,
  first: Buffer,
  parse: (bytes: Buffer, seenBytes: number) => M,
  mayGoOn: () => boolean,
): Promise<Read<M>> {
  let bytes = first
  for (;;) {
    const seenBytes = bytes.length
    const chunk = await side.read()
    if (chunk === null || (seenBytes > 0 && !mayGoOn())) return { message: { state: 'ended' }, bytes }
    bytes = seenBytes === 0 ? chunk : Buffer.concat([bytes, chunk])
    const message = parse(bytes, seenBytes)
    if (isWhole(message)) return { message, bytes }
  }
}

function isWhole<M extends { readonly state: string }>(message: M): message is Exclude<M, { readonly state: 'more' }> {
  return message.state !== 'more'
}

/** Sends the last word, then waits (bounded) for the client to end before closing, so that a reset does not overtake the answer. RFC 9112 section 9.6. */
export async function closeAfter(side: Side, lastWord: Buffer, lingers: Deadlines): Promise<void> {
  side.end(lastWord)
  lingers.start(side)
  let left = MAX_LINGER_BYTES
  while (left > 0) {
    const chunk = await side.read()
    if (chunk === null) break
    left -= chunk.length
  }
  lingers.stop(side)
  side.destroy()
}
