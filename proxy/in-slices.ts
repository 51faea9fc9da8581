/** Long work on the thread that serves connections. */
import { setImmediate } from 'node:timers/promises'

/** How long work goes on before connections have their turn. */
const SLICE_MS = 2

/** Steps of the policies, or such that also wait: for each promise that they yield, which must not reject. */
export type Waits<T> = Generator<Promise<void> | undefined, T, undefined>

/** Does the steps a few at a time, and lets everybody else go on in between. Rejects with what they throw. */
export async function inSlices<T>(steps: Waits<T>): Promise<T> {
  for (;;) {
    const untilMs = performance.now() + SLICE_MS
    do {
      const step = steps.next()
      if (step.done === true) return step.value
      if (step.value !== undefined) await step.value
    } while (performance.now() < untilMs)
    await setImmediate()
  }
}

/** Gives the pieces one after the other, and lets everybody else go on in between, however fast they are taken. */
export async function* piecesInSlices<T>(pieces: Iterable<T>): AsyncGenerator<T, void, undefined> {
  let untilMs = performance.now() + SLICE_MS
  for (const piece of pieces) {
    yield piece
    if (performance.now() < untilMs) continue
    await setImmediate()
    untilMs = performance.now() + SLICE_MS
  }
}
