/** What reads the audit log while the gateway runs and writes it: sinks. Everything here is off the way of a connection, and sees only files. */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Config } from '../config/schema.ts'
import type { AuditLogger } from './log.ts'
import type { AuditLog } from './record.ts'
import { openSink } from './sinks/open-sink.ts'
import { Shipper, type SinkStatus } from './sinks/shipper.ts'

/** What {@link openAuditService} needs. */
export interface AuditServiceOptions {
  readonly settings: Config['audit']
  /** The state folder, for positions. */
  readonly state: string
  readonly instance: string
  readonly version: string
  readonly logger: AuditLogger
}

/** Runs beside the log. */
export interface AuditService {
  /** Begins, once the log is open. */
  readonly start: (log: Pick<AuditLog, 'write'>) => void
  /** How the sinks are doing. */
  readonly sinks: () => Promise<readonly SinkStatus[]>
  /** After the log was closed: sends what is left for a moment, then stops. The rest goes at the next start. Idempotent. */
  readonly close: () => Promise<void>
}

/** For the last lines of a run to leave. */
const LAST_LINES_MS = 2000

/** Connects nothing before {@link AuditService.start}. */
export async function openAuditService(options: AuditServiceOptions): Promise<AuditService> {
  const { settings, state, instance, version, logger } = options
  const folder = join(state, 'audit-sinks')
  if (settings.sinks.length > 0) await mkdir(folder, { recursive: true, mode: 0o700 })
  let log: Pick<AuditLog, 'write'> | undefined
  const shippers = settings.sinks.map((sink) => {
    const { name } = sink
    return new Shipper({
      name,
      sink: openSink(sink, { instance, version, output: process.stdout }),
      folder: settings.path,
      instance,
      positionPath: join(folder, `${name}.${instance}.json`),
      logger,
      onRefused: ({ line }, why) => {
        // A line about a refused line that is refused itself would never end.
        if (line.kind === 'admin' && line.action === 'sink_refused') return
        void log?.write({
          kind: 'admin',
          action: 'sink_refused',
          detail: `sink ${name} refuses line ${line.seq}: ${why}`,
        })
      },
    })
  })
  return {
    start: (opened) => {
      log = opened
      for (const shipper of shippers) shipper.start()
    },
    sinks: () => Promise.all(shippers.map((shipper) => shipper.status())),
    close: async () => {
      await Promise.all(shippers.map((shipper) => shipper.close(LAST_LINES_MS)))
    },
  }
}
