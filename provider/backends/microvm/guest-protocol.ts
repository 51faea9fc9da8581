/** What host and guest say to each other over vsock before there is a worker. `deploy/microvm/guest` has the other side. */
import type { StartRequest } from '../../backend.ts'
import { INSIDE } from '../inside.ts'
import type { WorkerSettings } from '../../worker/settings.ts'

/** Of host and root file system; they must be equal. */
export const GUEST_PROTOCOL = 1

/** Ports of the vsock device. Boot and gateway are the host's, the worker's is the guest's. */
export const PORT = { boot: 1024, worker: 2024, gateway: 3128 } as const

/** The socket through which the host reaches the guest, in the machine's folder; that with `_PORT` behind it is what the guest reaches. */
export const VSOCK = 'v.sock'

/** Of the guest with a network: it has a neighbour and no route. The guest's address is in its own start-up file. */
export const TAP = { device: 'tap0', host: '169.254.77.1', guest: '169.254.77.2', prefix: 30 } as const

/** The worker's own threads and what stands around it; they come on top of what the caller gives. */
const OWN_PROCESSES = 24
const SEED_BYTES = 64

/** What one machine is to become. */
export type GuestOrder = Pick<StartRequest, 'workerToken' | 'env' | 'timeoutMs'> & { readonly maxProcesses: number }

/** The lines for a guest that waits. Data alone: `seed` and the time come from the caller. */
export function ordersFor(
  order: GuestOrder,
  { nowMs, seed }: { readonly nowMs: number; readonly seed: Buffer },
): string {
  const { workerToken, env, timeoutMs, maxProcesses } = order
  const settings: WorkerSettings = {
    token: workerToken,
    listen: { path: INSIDE.workerSocket },
    roots: [
      { path: INSIDE.workspace, writable: true },
      { path: '/tmp', writable: true },
    ],
    env: { HOME: INSIDE.workspace, ...env },
    ...(timeoutMs !== undefined && { timeToLiveMs: timeoutMs }),
    announce: true,
  }
  if (seed.length < SEED_BYTES) throw new TypeError(`a seed is ${SEED_BYTES} bytes or more`)
  const lines = [
    `time ${(nowMs / 1000).toFixed(3)}`,
    `seed ${seed.toString('hex')}`,
    `processes ${maxProcesses + OWN_PROCESSES}`,
    // The worker ends itself a little sooner, and in order.
    ...(timeoutMs === undefined ? [] : [`life ${Math.ceil(timeoutMs / 1000) + 1}`]),
    // A line of JSON: what it escapes are the line ends.
    `settings ${JSON.stringify(settings)}`,
  ]
  return `${lines.join('\n')}\n`
}
