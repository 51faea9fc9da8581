/** Bytes of one stream in, event lines out: text where it is UTF-8 (a character split between two reads is put together), base64 where not. */
import { isUtf8 } from 'node:buffer'
import type { StreamName } from './wire.ts'

/** Encoder of one stream. */
export interface OutputEncoder {
  /** The lines for these bytes: none when they are the beginning of a character. */
  push(bytes: Buffer): string
  /** The lines for what is held back. */
  end(): string
  /** Forgets what is held back, and says how many bytes that were. */
  drop(): number
}

/** @see https://www.rfc-editor.org/rfc/rfc3629#section-4 */
export function createOutputEncoder(stream: StreamName): OutputEncoder {
  const type = `${stream}_delta`
  let held: Buffer = Buffer.alloc(0)

  const line = (bytes: Buffer): string => {
    if (bytes.length === 0) return ''
    const event = isUtf8(bytes)
      ? { type, data: bytes.toString('utf8') }
      : { type, data: bytes.toString('base64'), encoding: 'base64' }
    return `${JSON.stringify(event)}\n`
  }

  return {
    push(bytes) {
      const all = held.length === 0 ? bytes : Buffer.concat([held, bytes])
      const whole = all.length - unfinishedBytes(all)
      held = Buffer.from(all.subarray(whole))
      return line(all.subarray(0, whole))
    },
    end() {
      const rest = held
      held = Buffer.alloc(0)
      return line(rest)
    },
    drop() {
      const dropped = held.length
      held = Buffer.alloc(0)
      return dropped
    },
  }
}

/** How many bytes at the end are the beginning of a character that the next bytes may finish: 0 to 3. */
export function unfinishedBytes(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0
    if (byte < 0x80) return 0
    if (byte >= 0xc0) return (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) > back && byte < 0xf8 ? back : 0
  }
  return 0
}
