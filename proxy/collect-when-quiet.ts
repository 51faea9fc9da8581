/**
 * Gives memory back once a busy time is over. V8 collects when something is allocated, so a process that has come to rest keeps what it needed while it was
 * busy. After one collection V8 sees by itself, some seconds later, that little is needed, and returns the rest to the system.
 * For processes that are a gateway and nothing else: whoever has one inside of a program of its own decides for itself.
 */
import { performance } from 'node:perf_hooks'
import v8 from 'node:v8'
import vm from 'node:vm'

/** What is seen of the process. */
export interface Reading {
  readonly residentBytes: number
  /** What has outlived some collections, dead or alive. */
  readonly oldBytes: number
  /** Of the time since the last look, from 0 to 1. */
  readonly busyShare: number
  /** Since the process began. */
  readonly processorMs: number
}

const LOOK_EVERY_MS = 10_000
/** Nobody notices a pause of some milliseconds then. */
const QUIET_SHARE = 0.05
/** Of the least that the process was seen with. */
const MOST_GROWTH = 1.2
/** For so long was the process at work since the last collection: else there is nothing new to collect. */
const WORK_MS = 2_000
/** All that is alive is looked at in one go, at a millisecond for a MiB or two. Where so much may be, V8 collects soon enough by itself. */
const MOST_OLD_BYTES = 128 * 1024 * 1024

/** Looks at this process now and then; returns what ends that. */
export function collectWhenQuiet(): () => void {
  const isDue = collectionRule()
  let since = performance.eventLoopUtilization()
  const timer = setInterval(() => {
    const busyShare = performance.eventLoopUtilization(since).utilization
    since = performance.eventLoopUtilization()
    const { user, system } = process.cpuUsage()
    const oldBytes = v8.getHeapSpaceStatistics().find((space) => space.space_name === 'old_space')?.space_used_size ?? 0
    const residentBytes = process.memoryUsage.rss()
    if (isDue({ residentBytes, oldBytes, busyShare, processorMs: (user + system) / 1000 })) collect()
  }, LOOK_EVERY_MS).unref()
  return () => clearInterval(timer)
}

/** A function that is told what was seen, and says whether to collect now. */
export function collectionRule(): (reading: Reading) => boolean {
  let leastBytes = Infinity
  let collectedAtMs = 0
  return ({ residentBytes, oldBytes, busyShare, processorMs }) => {
    leastBytes = Math.min(leastBytes, residentBytes)
    const isDue =
      busyShare < QUIET_SHARE &&
      residentBytes > leastBytes * MOST_GROWTH &&
      processorMs - collectedAtMs >= WORK_MS &&
      oldBytes <= MOST_OLD_BYTES
    if (isDue) collectedAtMs = processorMs
    return isDue
  }
}

let gc: (() => void) | undefined

/** Collects all that can be. Nobody else gets the means. */
export function collect(): void {
  if (gc === undefined) {
    v8.setFlagsFromString('--expose-gc')
    gc = vm.runInNewContext('gc') as () => void
    v8.setFlagsFromString('--no-expose-gc')
  }
  gc()
}
