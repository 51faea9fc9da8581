/** Readers with a fault in each, to see whether it is found: the kinds of faults that readers of bytes have. */
import { hold, type Target } from './target.ts'

/** What was planted, and in what. */
const READERS: Readonly<Record<string, { readonly seed: string; readonly run: (input: Buffer) => void }>> = {
  /** A length that is believed, three layers down. */
  'a length field': {
    seed: '\x16\x03\x01\x00\x06\x01\x00\x02ab',
    run: (input) => {
      if (input[0] !== 0x16 || input[1] !== 3 || input.length < 5) return
      const record = input.subarray(5, 5 + input.readUInt16BE(3))
      if (record.length < 4 || record[0] !== 1) return
      const body = record.subarray(3)
      if (body[0] === 0x61 && record[2] === 4) body.readUInt32BE(0)
    },
  },
  /** What is true of the whole is not of the pieces. */
  'two readings': {
    seed: 'a: 1\r\nb: 2\r\n\r\n',
    run: (input) => {
      const text = input.toString('latin1')
      const strict = text.split('\r\n').length
      const lenient = text.split(/\r?\n/).length
      const end = text.indexOf('\r\n\r\n')
      if (end > 0 && /^[a-z]+: /.test(text)) hold(strict === lenient, 'two readers read two heads')
    },
  },
  /** Where only one way leads, each step of which leads on. */
  'a chain of conditions': {
    seed: '0000000000',
    run: (input) => {
      if (input.length < 6) return
      if (input[0]! >> 4 !== 4) return
      if (input[1]! >> 4 !== 6) return
      if (input[2]! >> 4 !== 7) return
      if (input[3]! >> 4 !== 9) return
      throw new Error('reached')
    },
  },
  /** Time that grows with the square of the input. */
  'a quadratic expression': {
    seed: 'a,b,c',
    run: (input) => {
      // Each comma is a place to begin at, and each of them leads to the end of the row.
      ;/,+$/.test(input.toString('latin1'))
    },
  },
  /** An escape that is read twice. */
  'a round trip': {
    seed: 'a%20b',
    run: (input) => {
      const text = input.toString('latin1')
      if (!/^[a-z0-9%]*$/.test(text)) return
      const decode = (from: string) =>
        from.replace(/%([0-9a-f]{2})/g, (_all, hex: string) => String.fromCharCode(parseInt(hex, 16)))
      const once = decode(text)
      if (/^[a-z0-9%]*$/.test(once)) hold(decode(once) === once, 'read twice it says something else')
    },
  },
}

/** By name. */
export const PLANTED: readonly string[] = Object.keys(READERS)

/** The target with this fault. */
export function plantedIn(name: string): Target {
  const { seed, run } = READERS[name]!
  return {
    name,
    maxBytes: 8 * 1024,
    maxCpuMs: 10,
    seeds: [Buffer.from(seed, 'latin1')],
    words: ['%', ',', '\r\n', '\n', '25'],
    run,
  }
}
