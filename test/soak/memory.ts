/** Does memory grow? Samples over the time of a soak, and what they say. */

/** One look at a process. */
export interface MemorySample {
  /** In use after a collection. */
  readonly heapBytes: number
  readonly residentBytes: number
  readonly descriptors: number
}

/** What a process may take more in the last third than in the one before it: a part, and so many bytes besides. */
const HEAP = { part: 0.15, bytes: 3 * 1024 * 1024 }
/** Resident memory moves with the allocator and the collector. */
const RESIDENT = { part: 0.2, bytes: 24 * 1024 * 1024 }
const FEWEST_SAMPLES = 6

/** One sentence for each thing that grew. The first third is for warming up; medians, so that one sample in a busy moment says nothing. */
export function grown(name: string, samples: readonly MemorySample[]): string[] {
  if (samples.length < FEWEST_SAMPLES) return [`${name}: ${samples.length} samples of memory are too few`]
  const third = Math.floor(samples.length / 3)
  const [middle, last] = [samples.slice(third, -third), samples.slice(-third)]
  return (['heapBytes', 'residentBytes'] as const).flatMap((what) => {
    const [before, after] = [middle, last].map((part) => median(part.map((sample) => sample[what])))
    const slack = what === 'heapBytes' ? HEAP : RESIDENT
    return after! > before! * (1 + slack.part) + slack.bytes ? [`${name}: ${what} grew from ${before} to ${after}`] : []
  })
}

/** First, middle and last, in MiB. */
export function memoryText(samples: readonly MemorySample[]): string {
  const at = [0, Math.floor(samples.length / 3), Math.floor((2 * samples.length) / 3), samples.length - 1]
  const all = (what: 'heapBytes' | 'residentBytes') =>
    at.map((index) => ((samples[index]?.[what] ?? NaN) / 1024 / 1024).toFixed(1)).join(', ')
  return `heap ${all('heapBytes')}; resident ${all('residentBytes')} MiB at the start and after each third`
}

function median(values: readonly number[]): number {
  return [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? NaN
}
