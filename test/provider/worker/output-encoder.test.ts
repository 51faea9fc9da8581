/** Bytes to event lines, at every point at which a stream can be split. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createOutputEncoder, unfinishedBytes } from '../../../provider/worker/output-encoder.ts'

interface Line {
  readonly type: string
  readonly data: string
  readonly encoding?: 'base64'
}

const linesOf = (text: string): Line[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line)
const encode = (pieces: readonly Buffer[]): Line[] => {
  const encoder = createOutputEncoder('stdout')
  return linesOf(pieces.map((piece) => encoder.push(piece)).join('') + encoder.end())
}
const bytesOf = (lines: readonly Line[]) =>
  Buffer.concat(lines.map((line) => Buffer.from(line.data, line.encoding ?? 'utf8')))

describe('the encoder', () => {
  const text = Buffer.from('a\0ä€🙂\u2028"\\\n\u007f' + '\u{10FFFF}')

  it('makes text of UTF-8 wherever it is split', () => {
    for (let first = 0; first <= text.length; first++) {
      for (let second = first; second <= text.length; second++) {
        const lines = encode([text.subarray(0, first), text.subarray(first, second), text.subarray(second)])
        expect(lines.every((line) => line.encoding === undefined)).toBe(true)
        expect(lines.map((line) => line.data).join('')).toBe(text.toString())
      }
    }
  })

  it('keeps every byte of anything, in one line a piece', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 8 })), (pieces) => {
        const buffers = pieces.map((piece) => Buffer.from(piece))
        expect(bytesOf(encode(buffers))).toEqual(Buffer.concat(buffers))
      }),
    )
  })

  it('sends text of a stream with bad bytes as it would stand in one decoder', () => {
    const bytes = fc.array(
      fc.constantFrom(0x61, 0xc3, 0xa4, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x99, 0x82, 0xff, 0xed, 0xa0),
      { maxLength: 20 },
    )
    fc.assert(
      fc.property(bytes, fc.nat(20), (all, split) => {
        const whole = Buffer.from(all)
        const lines = encode([whole.subarray(0, split), whole.subarray(split)])
        const decoded = lines.map((line) => Buffer.from(line.data, line.encoding ?? 'utf8').toString('utf8')).join('')
        expect(decoded).toBe(whole.toString('utf8'))
      }),
    )
  })

  it('forgets what it holds when told to', () => {
    const encoder = createOutputEncoder('stderr')
    expect(linesOf(encoder.push(Buffer.from([0x61, 0xf0, 0x9f])))).toEqual([{ type: 'stderr_delta', data: 'a' }])
    expect(encoder.drop()).toBe(2)
    expect(encoder.end()).toBe('')
  })
})

it.each([
  [[], 0],
  [[0x61], 0],
  [[0xc3], 1],
  [[0xc3, 0xa4], 0],
  [[0xe2, 0x82], 2],
  [[0xe2, 0x82, 0xac], 0],
  [[0xf0, 0x9f, 0x99], 3],
  [[0xf0, 0x9f, 0x99, 0x82], 0],
  [[0x82], 0],
  [[0x82, 0x82, 0x82, 0x82], 0],
  [[0xff], 0],
  [[0xff, 0x82], 0],
  [[0x61, 0xe2], 1],
])('of %j the last %i bytes may become a character', (bytes, count) => {
  expect(unfinishedBytes(Uint8Array.from(bytes))).toBe(count)
})
