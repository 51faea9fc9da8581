/** The sections on limits, timeouts and the gateway's own log. */
import { z } from 'zod'
import { bytes, seconds } from './values.ts'

const MAX_TUNNELS = 1_000_000
const count = (most: number) => z.int().min(1).max(most)

/** A read takes up to 64 KiB at once: a slower rate would be minutes of silence. */
const MIN_RATE = 1024

const MAX_WORKERS = 64

/** `workers` of the configuration file. */
export const workersField = count(MAX_WORKERS)
  .default(1)
  .describe(
    'Processes that serve `listen.proxy` together, one for each core that is to be used; 1: the gateway is one process. With more, one process beside them supervises, and has the admin listener and bound listeners. Linux alone; changes with a restart.',
  )

/** `limits` of the configuration file. */
export const limitsSection = z
  .strictObject({
    tunnels: count(MAX_TUNNELS)
      .default(10_000)
      .describe('Open tunnels of the whole gateway. Beyond: 503 `gateway_busy`.'),
    turnAway: z
      .boolean()
      .default(true)
      .describe(
        'Whether connections of an address of which too much comes to nothing are closed unread while the gateway is busy. `false` where many sandboxes share an address: then none is shut out by another, and all wait.',
      ),
    perSandbox: z
      .strictObject({
        tunnels: count(MAX_TUNNELS).default(200).describe('Open tunnels of one sandbox. Beyond: 429 `tunnel_limit`.'),
        newPerSecond: count(100_000)
          .default(50)
          .describe('New connections of one sandbox in a second. Beyond: 429 `rate_limit`.'),
        bytesPerDay: bytes(1)
          .optional()
          .describe(
            'Bytes of one sandbox, both directions, in a UTC day. Beyond: 429 `byte_quota`. Absent: no such limit.',
          ),
        bytesPerSecond: bytes(MIN_RATE)
          .optional()
          .describe(
            'Bytes of one sandbox in a second, both directions of all its connections together. Beyond: they are read more slowly, and none is cut unless it stands still for `timeouts.idleSeconds`. Absent: no such limit.',
          ),
      })
      .prefault({})
      .describe('For each sandbox; a token without one counts by its id.'),
    perTenant: z
      .strictObject({
        tunnels: count(MAX_TUNNELS)
          .optional()
          .describe('Open tunnels of one tenant. Absent: only the limit of the gateway.'),
        newPerSecond: count(100_000)
          .optional()
          .describe('New connections of one tenant in a second. Absent: no such limit.'),
        bytesPerDay: bytes(1)
          .optional()
          .describe('Bytes of one tenant, both directions, in a UTC day. Absent: no such limit.'),
        bytesPerSecond: bytes(MIN_RATE)
          .optional()
          .describe(
            'Bytes of one tenant in a second, both directions of all its connections together. Absent: no such limit.',
          ),
      })
      .prefault({})
      .describe('For each tenant, over all its sandboxes.'),
  })
  .prefault({})
  .describe('How much at once. Sizes are bytes or `64MiB`, `5GiB`, `1GB`.')

/** `timeouts` of the configuration file. */
export const timeoutsSection = z
  .strictObject({
    headSeconds: seconds(0.1, 300).prefault(10).describe('For a client to send a whole request head.'),
    dnsSeconds: seconds(0.1, 60).prefault(5).describe('For a name to resolve.'),
    connectSeconds: seconds(0.1, 300).prefault(10).describe('For a destination to answer, over all its addresses.'),
    idleSeconds: seconds(1, 86_400).prefault(300).describe('After which a tunnel that carried nothing is cut.'),
    drainSeconds: seconds(0, 3_600)
      .prefault(30)
      .describe('For open tunnels to end by themselves when the gateway stops.'),
  })
  .prefault({})
  .describe('How long. Seconds, or `500ms`, `10s`, `5m`, `1h`.')

/** `log` of the configuration file. */
export const logSection = z
  .strictObject({
    level: z
      .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'])
      .default('info')
      .describe("Least severity of the gateway's own log (JSON on standard error). It is not the audit log."),
  })
  .prefault({})
  .describe("The gateway's own log.")
