/** What the admin side sees of a gateway's worker processes. Where there are none, the process that has the admin listener is the whole gateway. */
import type { SinkStatus } from '../audit/sinks/shipper.ts'
import type { MetricsRead } from './exposition.ts'
import type { OpenTunnels } from './open-tunnels.ts'

/** How many workers there are to be, how many of them serve now, and how many were put in the place of others since the start. */
export interface WorkerCounts {
  readonly configured: number
  readonly serving: number
  readonly replaced: number
}

/** The workers of a gateway. */
export interface WorkersView {
  readonly counts: () => WorkerCounts
  /** Why one of them should get no new connections; empty when all may. */
  readonly notReady: () => readonly string[]
  /** The tunnels of all workers. */
  readonly tunnels: OpenTunnels
  /** The sinks of all workers, those of one name together, and whether all logs can be written. */
  readonly audit: () => Promise<{ readonly sinks: readonly SinkStatus[]; readonly isWritable: boolean }>
  /** In the Prometheus text format: what this process counts with what all workers count, also those that are gone. */
  readonly renderMetrics: (here: MetricsRead) => Promise<string>
  /** Has every worker look at the state and at its tunnels again; the number of those that did not confirm in time, and were ended. */
  readonly confirmState: () => Promise<number>
}
