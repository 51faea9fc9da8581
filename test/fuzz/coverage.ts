/** Which parts of the product have run so far in this thread: V8's own block coverage, asked for after a batch of inputs. */
import { type Profiler, Session } from 'node:inspector'

/** Coverage since {@link openCoverage}. */
export interface Coverage {
  /** Whether any of what ran since the last call had never run before; `keeps`: from now on it has. */
  readonly isNew: (keeps: boolean) => boolean
  /** Bytes of source that have run. */
  readonly size: () => number
  /** Forgets what has run. */
  readonly reset: () => void
}

/** `counts` says which scripts, by their URLs. */
export function openCoverage(counts: (url: string) => boolean): Coverage {
  const session = new Session()
  session.connect()
  /** By script: a byte for each byte of its source, 1 where it has run. */
  const known = new Map<string, Uint8Array>()
  const ask = (method: string, parameters: object = {}): unknown => {
    // It answers before it returns.
    const answers: (readonly [Error | null, unknown])[] = []
    session.post(method, parameters, (error, result) => void answers.push([error, result]))
    const [error, result] = answers[0] ?? [new Error(`${method}: no answer`), undefined]
    if (error !== null) throw error
    return result
  }
  const take = () => (ask('Profiler.takePreciseCoverage') as Profiler.TakePreciseCoverageReturnType).result

  ask('Profiler.enable')
  // With counts, each answer is only about what ran since the last one.
  ask('Profiler.startPreciseCoverage', { callCount: true, detailed: true, allowTriggeredUpdates: false })
  return {
    isNew: (keeps) => {
      let isNew = false
      for (const { url, functions } of take()) {
        if (!counts(url)) continue
        for (const { ranges } of functions) {
          const whole = ranges[0]
          if (whole === undefined || whole.count === 0) continue
          const seen = roomFor(known, url, whole.endOffset)
          for (const [start, end] of ranThrough(ranges)) {
            const first = seen.subarray(start, end).indexOf(0)
            if (first === -1) continue
            isNew = true
            if (keeps) seen.fill(1, start + first, end)
          }
        }
      }
      return isNew
    },
    size: () => {
      let size = 0
      for (const seen of known.values()) for (const one of seen) size += one
      return size
    },
    reset: () => {
      take()
      known.clear()
    },
  }
}

function roomFor(known: Map<string, Uint8Array>, url: string, length: number): Uint8Array {
  const old = known.get(url)
  if (old !== undefined && old.length >= length) return old
  const larger = new Uint8Array(Math.max(length, 2 * (old?.length ?? 0)))
  if (old !== undefined) larger.set(old)
  known.set(url, larger)
  return larger
}

/** The pieces of a function that ran. Its ranges lie in each other, the outer ones first, and the innermost counts. */
function ranThrough(ranges: readonly Profiler.CoverageRange[]): (readonly [number, number])[] {
  const pieces: (readonly [number, number])[] = []
  const open: Profiler.CoverageRange[] = []
  let at = ranges[0]?.startOffset ?? 0
  const advance = (to: number): void => {
    const innermost = open.at(-1)
    if (to > at && innermost !== undefined && innermost.count > 0) pieces.push([at, to])
    at = Math.max(at, to)
  }
  const closeBefore = (offset: number): void => {
    for (let last = open.at(-1); last !== undefined && last.endOffset <= offset; last = open.at(-1)) {
      advance(last.endOffset)
      open.pop()
    }
  }
  for (const range of ranges) {
    closeBefore(range.startOffset)
    advance(range.startOffset)
    open.push(range)
  }
  closeBefore(Infinity)
  return pieces
}
