/** Long work on the thread that serves connections. */
import { setImmediate } from 'node:timers/promises'
import type { Steps } from '../policies/index.ts'

/** How long work goes on before connections have their turn. */
const SLICE_MS = 5

/** Does the steps a few at a time, and lets everybody else go on in between. Rejects with what they throw. */
export async function inSlices<T>(steps: Steps<T>): Promise<T> {
  for (;;) {
    const untilMs = performance.now() + SLICE_MS
    do {
      const step = steps.next()
      if (step.done === true) return step.value
    } while (performance.now() < untilMs)
    await setImmediate()
  }
}
