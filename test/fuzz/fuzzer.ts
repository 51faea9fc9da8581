/** Looks for inputs that break a target: changes what it has, keeps what reaches code that no other reached, and makes small what it finds. */
import type { Coverage } from './coverage.ts'
import { mutate } from './mutate.ts'
import type { Random } from './random.ts'
import { Broken, type Target } from './target.ts'

/** What {@link fuzz} needs. */
export interface FuzzOptions {
  readonly target: Target
  readonly random: Random
  /** Absent: blind, with the seeds and the corpus alone. */
  readonly coverage?: Coverage | undefined
  readonly corpus?: readonly Buffer[]
  /** Whether to go on. */
  readonly goesOn: (executed: number) => boolean
  /** Told of each input before it runs: who watches from outside sees which one hangs. */
  readonly onInput?: (input: Buffer) => void
  /** Ends at so many findings; default 3. */
  readonly maxFindings?: number
}

/** Something that broke. */
export interface Finding {
  /** One line: what does not hold, or the error and where it came from. */
  readonly what: string
  readonly details: string
  readonly input: Buffer
  /** Inputs before it. */
  readonly executed: number
}

/** What came of it. */
export interface FuzzResult {
  readonly executed: number
  readonly findings: readonly Finding[]
  /** Every input that reached something new, the given ones included. */
  readonly kept: readonly Buffer[]
}

/** Inputs between two looks at the coverage; the look costs as much as some of them. */
const BATCH = 64
/** What takes too long is timed again: the collector may have run. */
const TIMINGS = 4
/** Tries to make a finding smaller, and how long that may take. */
const MINIMISING = 2_000
const MINIMISING_MS = 8_000
const NEWEST = 16
/** The byte that says least. */
const PLAIN = 0x61

/** Runs until it is told to stop. */
export async function fuzz(options: FuzzOptions): Promise<FuzzResult> {
  const { target, random, coverage, corpus = [], goesOn, maxFindings = 3 } = options
  const kept: Buffer[] = []
  const findings: Finding[] = []
  let executed = 0

  const tryOne = async (input: Buffer): Promise<void> => {
    executed += 1
    options.onInput?.(input)
    const failure = await failureOf(target, input)
    if (failure === undefined || findings.some(({ what }) => what === failure.what)) return
    const small = await minimise(target, input, failure.what, options.onInput)
    findings.push({ ...((await failureOf(target, small)) ?? failure), input: small, executed })
  }
  /** Keeps those of the inputs that reach something new. All of them have run; half of them at a time, few looks tell which. */
  const keepNew = async (inputs: readonly Buffer[], known: Coverage): Promise<void> => {
    for (const input of inputs) await run(target, input)
    const [only, ...more] = inputs
    if (only === undefined || !known.isNew(more.length === 0)) return
    if (more.length === 0) kept.push(only)
    else {
      await keepNew(inputs.slice(0, inputs.length >> 1), known)
      await keepNew(inputs.slice(inputs.length >> 1), known)
    }
  }

  for (const input of [...target.seeds, ...corpus]) {
    await tryOne(input)
    if (coverage === undefined) kept.push(input)
    else if (coverage.isNew(true)) kept.push(input)
  }
  if (kept.length === 0) kept.push(Buffer.alloc(0))
  const isOver = (): boolean => findings.length >= maxFindings || !goesOn(executed)
  while (!isOver()) {
    const batch: Buffer[] = []
    while (batch.length < BATCH && !isOver()) {
      // The newest are the least explored.
      const from = random.below(2) === 0 ? Math.max(0, kept.length - NEWEST) : 0
      const base = kept[from + random.below(kept.length - from)]!
      const input = mutate(base, random, { others: kept, words: target.words, maxBytes: target.maxBytes })
      batch.push(input)
      await tryOne(input)
    }
    if (coverage?.isNew(false) === true) await keepNew(batch, coverage)
  }
  return { executed, findings, kept }
}

/** Runs one input; what breaks, in one line and at length, or `undefined`. */
export async function failureOf(
  target: Target,
  input: Buffer,
): Promise<{ readonly what: string; readonly details: string } | undefined> {
  let least = Infinity
  for (let tries = 0; tries < TIMINGS; tries += 1) {
    const before = process.threadCpuUsage()
    const failure = await run(target, input)
    if (failure !== undefined) return failure
    const { user, system } = process.threadCpuUsage(before)
    least = Math.min(least, (user + system) / 1000)
    if (least <= target.maxCpuMs) return undefined
  }
  return { what: 'takes too long', details: `${least.toFixed(0)} ms of processor time for ${input.length} bytes` }
}

async function run(
  target: Target,
  input: Buffer,
): Promise<{ readonly what: string; readonly details: string } | undefined> {
  try {
    // What a target does to its input is its own affair.
    const running = target.run(Buffer.from(input))
    if (running instanceof Promise) await running
    return undefined
  } catch (error) {
    if (!(error instanceof Error)) return { what: 'throws what is no error', details: String(error) }
    const [first = '', ...rest] = error.message.split('\n')
    if (error instanceof Broken) return { what: first, details: rest.join('\n') }
    const place = /\/((?:policies|proxy|provider|node_modules)\/[^)]*?):\d+\)?$/m.exec(error.stack ?? '')?.[1] ?? ''
    return { what: `throws ${error.name} at ${place}`, details: error.stack ?? error.message }
  }
}

/** Takes away and simplifies, as long as the same thing breaks. */
async function minimise(
  target: Target,
  input: Buffer,
  what: string,
  onInput?: (input: Buffer) => void,
): Promise<Buffer> {
  let smallest = input
  const deadlineMs = performance.now() + MINIMISING_MS
  let left = MINIMISING
  const breaks = async (candidate: Buffer): Promise<boolean> => {
    left = performance.now() < deadlineMs ? left - 1 : 0
    onInput?.(candidate)
    const isSo = (await failureOf(target, candidate))?.what === what
    if (isSo) smallest = candidate
    return isSo
  }
  for (let size = input.length >> 1; size > 0 && left > 0; size >>= 1) {
    for (let at = 0; at < smallest.length && left > 0;) {
      const isTaken = await breaks(Buffer.concat([smallest.subarray(0, at), smallest.subarray(at + size)]))
      if (!isTaken) at += size
    }
  }
  for (let at = 0; at < smallest.length && left > 0; at += 1) {
    if (smallest[at] === PLAIN) continue
    const candidate = Buffer.from(smallest)
    candidate[at] = PLAIN
    await breaks(candidate)
  }
  return smallest
}
