/**
 * Messages between the supervising process and one worker, over a socket that both inherit: a length and JSON. Node's own channel between processes reads a
 * message of any size; this one ends where the other side sends more than it may, or does not read.
 */
import type { Duplex } from 'node:stream'

/** One end. */
export interface Link<Sent> {
  /** Queues a message. @throws RangeError when it is longer than may be sent */
  readonly send: (message: Sent) => void
  /** Bytes that wait for the other side to read. */
  readonly waiting: () => number
  /** Idempotent. */
  readonly close: () => void
}

/** Settings of {@link openLink}. */
export interface LinkOptions {
  /** Of what comes; called in order. What it throws ends the link. */
  readonly onMessage: (message: unknown) => void
  /** Told once: the other side is gone (`undefined`), or did what it may not. */
  readonly onEnd: (fault: string | undefined) => void
  /** Bytes of the longest message that is read. */
  readonly longest: number
  /** Bytes of the longest message that the other side reads. */
  readonly longestSent: number
}

const HEADER_BYTES = 4
/** What waits for a side that does not read; beyond, it is given up. */
const MOST_WAITING = 64 * 1024 * 1024

/** Speaks over an open stream, which is the link's from then on. */
export function openLink<Sent>(stream: Duplex, { onMessage, onEnd, longest, longestSent }: LinkOptions): Link<Sent> {
  const chunks: Buffer[] = []
  let length = 0
  let isOver = false

  const end = (fault: string | undefined): void => {
    if (isOver) return
    isOver = true
    stream.destroy()
    onEnd(fault)
  }

  stream.on('data', (chunk: Buffer) => {
    chunks.push(chunk)
    length += chunk.length
    try {
      readAll()
    } catch {
      end('sent what is no message')
    }
  })
  stream.once('end', () => end(undefined))
  stream.once('close', () => end(undefined))
  stream.on('error', () => end(undefined))

  function readAll(): void {
    while (!isOver && length >= HEADER_BYTES) {
      const size = take(HEADER_BYTES, false).readUInt32BE()
      if (size > longest) {
        end(`sent a message of ${size} bytes, and ${longest} is the most`)
        return
      }
      if (length < HEADER_BYTES + size) return
      onMessage(JSON.parse(take(HEADER_BYTES + size, true).toString('utf8', HEADER_BYTES)))
    }
  }

  /** The first bytes that came; `isRead`: they are gone then. */
  function take(bytes: number, isRead: boolean): Buffer {
    const [first] = chunks
    const whole = first !== undefined && first.length >= bytes ? first : Buffer.concat(chunks, length)
    if (whole !== first) chunks.splice(0, chunks.length, whole)
    if (isRead) {
      length -= bytes
      if (whole.length === bytes) chunks.shift()
      else chunks[0] = whole.subarray(bytes)
    }
    return whole.subarray(0, bytes)
  }

  return {
    send: (message) => {
      if (isOver) return
      const text = JSON.stringify(message)
      const size = Buffer.byteLength(text)
      if (size > longestSent) throw new RangeError(`a message of ${size} bytes, and ${longestSent} is the most`)
      const frame = Buffer.allocUnsafe(HEADER_BYTES + size)
      frame.writeUInt32BE(size)
      frame.write(text, HEADER_BYTES)
      stream.write(frame)
      if (stream.writableLength > MOST_WAITING) end('does not read what it is sent')
    },
    waiting: () => stream.writableLength,
    close: () => {
      isOver = true
      stream.destroy()
    },
  }
}
