/** Of a gateway whose metrics nobody can read, since it has no admin listener. */
import type { Metrics } from './metrics.ts'

const ignore = (): void => undefined

/** Counts nothing. */
export const NO_METRICS: Metrics = {
  countConnection: ignore,
  countSetUp: ignore,
  countEmptyConnection: ignore,
  countTurnedAway: ignore,
  countTunnel: ignore,
  countAuditLines: ignore,
  countAuditWrite: ignore,
  countAuditLost: ignore,
  countKeyRefresh: ignore,
  countPolicy: ignore,
  render: () => Promise.resolve(''),
  read: () => Promise.resolve([]),
  contentType: 'text/plain',
  close: ignore,
}
