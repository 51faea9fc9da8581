/** Reading a message from a side that may send it in any pieces, and saying the last word to one that is refused. */
import type { Deadlines } from '../deadlines.ts'
import type { Side } from '../relay/side.ts'

/** What a refused client may still send before it is cut off; its answer could be lost in a reset if its bytes were left unread. */
const MAX_LINGER_BYTES = 256 * 1024

/** Reads until `parse` knows what the bytes are, or the client ends; `bytes` is everything read. The caller's deadline ends a slow one. */
export async function readMessage<M extends { readonly state: string }>(
  side: Side,
  first: Buffer,
  parse: (bytes: Buffer, seenBytes: number) => M,
): Promise<{
  readonly message: Exclude<M, { readonly state: 'more' }> | { readonly state: 'ended' }
  readonly bytes: Buffer
}> {
  let bytes = first
  let seenBytes = 0
  for (;;) {
    const message = parse(bytes, seenBytes)
    if (message.state !== 'more') return { message: message as Exclude<M, { readonly state: 'more' }>, bytes }
    seenBytes = bytes.length
    const chunk = await side.read()
    if (chunk === null) return { message: { state: 'ended' }, bytes }
    bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk])
  }
}

/** Sends the last word, then waits (bounded) for the client to end before closing, so that a reset does not overtake the answer. RFC 9112 section 9.6. */
export async function closeAfter(side: Side, lastWord: Buffer, lingers: Deadlines): Promise<void> {
  side.end(lastWord)
  lingers.start(side, () => side.destroy())
  let left = MAX_LINGER_BYTES
  while (left > 0) {
    const chunk = await side.read()
    if (chunk === null) break
    left -= chunk.length
  }
  lingers.stop(side)
  side.destroy()
}
