/** Makes an input out of others: the small changes that parsers trip over. */
import type { Random } from './random.ts'

const BYTES = [0, 1, 0x7f, 0x80, 0xff, 9, 10, 13, 32, 34, 44, 46, 58, 64, 91, 93, 123, 125]
const NUMBERS = ['0', '-1', '1', '00', '255', '256', '65535', '65536', '99999', '4294967296', '9007199254740993', '1e9']

type Mutation = (bytes: Buffer, random: Random, others: readonly Buffer[], words: readonly string[]) => Buffer

/** At most this many changes at once. */
const MOST_CHANGES = 4
/** Long inputs are slow and mostly say what short ones say: one in so many may be as long as it gets. */
const LONG_ONE_IN = 24
const SHORT_BYTES = 1024

/** A changed copy of `bytes`, no longer than `maxBytes`. `others` are inputs to take parts of; `words` mean something to the target. */
export function mutate(
  bytes: Buffer,
  random: Random,
  { others, words, maxBytes }: { others: readonly Buffer[]; words: readonly string[]; maxBytes: number },
): Buffer {
  let changed: Buffer = bytes
  const limit = random.below(LONG_ONE_IN) === 0 ? maxBytes : Math.min(maxBytes, Math.max(SHORT_BYTES, 2 * bytes.length))
  for (let left = 1 + random.below(MOST_CHANGES); left > 0; left -= 1)
    changed = random.pick(MUTATIONS)(changed, random, others, words)
  return changed.subarray(0, limit)
}

const replace = (bytes: Buffer, from: number, to: number, ...middle: readonly Buffer[]): Buffer =>
  Buffer.concat([bytes.subarray(0, from), ...middle, bytes.subarray(to)])

/** Where a part begins and ends; short ones are more likely. */
function part({ length }: Buffer, random: Random): readonly [number, number] {
  const from = random.below(length + 1)
  const most = Math.min(length - from, random.pick([1, 4, 16, 64, length]))
  return [from, from + (most === 0 ? 0 : 1 + random.below(most))]
}

function setByte(bytes: Buffer, random: Random, value: (old: number) => number): Buffer {
  if (bytes.length === 0) return Buffer.from([value(0) & 0xff])
  const copy = Buffer.from(bytes)
  const at = random.below(copy.length)
  copy[at] = value(copy[at]!) & 0xff
  return copy
}

const MUTATIONS: readonly Mutation[] = [
  (bytes, random) => setByte(bytes, random, (old) => old ^ (1 << random.below(8))),
  (bytes, random) => setByte(bytes, random, () => random.pick(BYTES)),
  (bytes, random) => setByte(bytes, random, () => random.below(256)),
  (bytes, random) => setByte(bytes, random, (old) => old + random.below(9) - 4),
  // A part goes.
  (bytes, random) => replace(bytes, ...part(bytes, random)),
  // A part comes once more, elsewhere.
  (bytes, random) => {
    const at = random.below(bytes.length + 1)
    return replace(bytes, at, at, bytes.subarray(...part(bytes, random)))
  },
  // A part comes many times: what is quadratic shows.
  (bytes, random) => {
    const [from, to] = part(bytes, random)
    const times = 1 + random.below(random.pick([4, 4, 16, 256]))
    return replace(bytes, to, to, ...Array.from({ length: times }, () => bytes.subarray(from, to)))
  },
  // One byte, again and again.
  (bytes, random) => {
    const at = random.below(bytes.length + 1)
    const byte = random.below(2) === 0 ? (bytes[at] ?? 0) : random.pick(BYTES)
    return replace(bytes, at, at, Buffer.alloc(1 + random.below(random.pick([8, 256, 4096, 65_536])), byte))
  },
  // Two parts change places.
  (bytes, random) => {
    const cuts = [0, 0, 0, 0].map(() => random.below(bytes.length + 1)).sort((one, other) => one - other)
    const [a, b, c, d] = cuts as [number, number, number, number]
    return replace(bytes, a, d, bytes.subarray(c, d), bytes.subarray(b, c), bytes.subarray(a, b))
  },
  (bytes, random) => {
    const at = random.below(bytes.length + 1)
    return replace(bytes, at, at, Buffer.from(Array.from({ length: 1 + random.below(8) }, () => random.below(256))))
  },
  // A word comes in, or stands where something was.
  (bytes, random, _others, words) => {
    if (words.length === 0) return bytes
    const [from, to] = part(bytes, random)
    return replace(bytes, from, random.below(2) === 0 ? from : to, Buffer.from(random.pick(words), 'latin1'))
  },
  // The end or the middle of another input.
  (bytes, random, others) => {
    const other = random.pick(others)
    const [from, to] = part(bytes, random)
    return replace(bytes, from, to, other.subarray(...part(other, random)))
  },
  (bytes, random, others) => {
    const other = random.pick(others)
    return Buffer.concat([
      bytes.subarray(0, random.below(bytes.length + 1)),
      other.subarray(random.below(other.length + 1)),
    ])
  },
  // A number in digits becomes another one.
  (bytes, random) => {
    const found = [...bytes.toString('latin1').matchAll(/[0-9]+/g)]
    if (found.length === 0) return bytes
    const { index, 0: digits } = random.pick(found)
    return replace(bytes, index, index + digits.length, Buffer.from(random.pick(NUMBERS)))
  },
  // A length in one, two or three bytes becomes another one.
  (bytes, random) => {
    const width = 1 + random.below(3)
    if (bytes.length < width) return bytes
    const copy = Buffer.from(bytes)
    const at = random.below(copy.length - width + 1)
    const old = copy.readUIntBE(at, width)
    const most = 2 ** (8 * width) - 1
    const wanted = random.pick([0, 1, most, copy.length - at - width, old + 1, old - 1, 16_384, 16_385, 255, 256])
    copy.writeUIntBE(Math.min(most, Math.max(0, wanted)), at, width)
    return copy
  },
  (bytes, random) => {
    const text = bytes.toString('latin1')
    return Buffer.from(random.below(2) === 0 ? text.toUpperCase() : text.toLowerCase(), 'latin1')
  },
]
