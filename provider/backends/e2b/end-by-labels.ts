/** Ends what a request made whose reply was lost: found by its labels, since nobody was told its id. */
import { setTimeout as delay } from 'node:timers/promises'
import type { E2bApi } from './e2b-api.ts'

/** The list may lag behind what was made. A machine that shows up later still ends by itself, within its first lease. */
const TRIES = 3
const PAUSE_MS = 1_000

/** Ends each; none is fine. */
export async function endByLabels(
  api: Pick<E2bApi, 'list' | 'end'>,
  labels: Readonly<Record<string, string>>,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const found = await api.list(labels)
    await Promise.all(found.map(({ machineId }) => api.end(machineId)))
    if (found.length > 0 || attempt === TRIES) return
    await delay(PAUSE_MS)
  }
}
