/** What reads the audit log while the gateway runs and writes it: sinks, alerts, verification, retention. All of it is off the way of a connection, and sees only files. */
import { readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Config } from '../config/schema.ts'
import { AUDIT_PUBLIC_KEY_FILE } from '../state/audit-key.ts'
import { createAlertSink } from './alerts/alert-sink.ts'
import { AlertDetector } from './alerts/detector.ts'
import { IntegrityWatch } from './integrity.ts'
import { parseVerifyKeys } from './key.ts'
import type { AuditLogger } from './log.ts'
import type { AuditLog } from './record.ts'
import { retireFiles } from './retention/retire.ts'
import { SignedTo } from './retention/signed-to.ts'
import { faultLine } from './retention/verify-apart.ts'
import { openSink } from './sinks/open-sink.ts'
import { readPosition } from './sinks/position.ts'
import { sinksByName } from './sinks/sinks-by-name.ts'
import { Shipper, type ShipperOptions, type SinkStatus } from './sinks/shipper.ts'
import type { Sink } from './sinks/sink.ts'

/** What {@link openAuditService} needs. */
export interface AuditServiceOptions {
  readonly settings: Config['audit']
  /** The state folder, for positions and the public key. */
  readonly state: string
  readonly instance: string
  readonly version: string
  readonly logger: AuditLogger
  /** Whose lines may raise alerts, together. Default: those of `instance` alone. */
  readonly alertInstances?: readonly string[]
  /** How often retention looks. Default a minute. */
  readonly retentionMs?: number
}

/** Runs beside the log. */
export interface AuditService {
  /** Begins, once the log is open. */
  readonly start: (log: Pick<AuditLog, 'write'>) => void
  /** To be called with each checkpoint of the log. */
  readonly onCheckpoint: (line: string) => void
  /** How the sinks are doing. */
  readonly sinks: () => Promise<readonly SinkStatus[]>
  /** How sound the log is, as far as it is known. */
  readonly integrity: Pick<IntegrityWatch, 'read' | 'verify'>
  /** After the log was closed: sends what is left for a moment, then stops. The rest goes at the next start. Idempotent. */
  readonly close: () => Promise<void>
}

/** For the last lines of a run to leave. */
const LAST_LINES_MS = 2000
/** A checkpoint follows a line within ten seconds; a log that can't be written signs nothing. */
const SIGNED_WITHIN_MS = 30_000

/** Connects nothing before {@link AuditService.start}. */
export async function openAuditService(options: AuditServiceOptions): Promise<AuditService> {
  const { settings, state, instance, version, logger, alertInstances = [instance] } = options
  const folder = join(state, 'audit-sinks')
  const keyFile = join(state, AUDIT_PUBLIC_KEY_FILE)
  const { webhook, canaryHosts, challenges, refusals } = settings.alerts
  const { maxAgeSeconds, maxBytes, maxSinkLagBytes } = settings.retention
  if (settings.sinks.length > 0 || webhook !== undefined) await mkdir(folder, { recursive: true, mode: 0o700 })
  const stopped = new AbortController()
  const timers: NodeJS.Timeout[] = []
  let log: Pick<AuditLog, 'write'> | undefined
  const integrity = new IntegrityWatch({ folder: settings.path, instance, keyFile, signal: stopped.signal })
  const signedTo = new SignedTo({ folder: settings.path, instance, withinMs: SIGNED_WITHIN_MS })

  const positionPath = (name: string, of: string) => join(folder, `${name}.${of}.json`)
  const shipper = (name: string, sink: Sink, onRefused?: ShipperOptions['onRefused'], of = instance) =>
    new Shipper({
      name,
      sink,
      folder: settings.path,
      instance: of,
      positionPath: positionPath(name, of),
      logger,
      ...(onRefused === undefined ? {} : { onRefused }),
    })
  const shippers = settings.sinks.map((sink) =>
    shipper(sink.name, openSink(sink, { instance, version, output: process.stdout }), ({ line }, why) => {
      // A line about a refused line that is refused itself would never end.
      if (line.kind === 'admin' && line.action === 'sink_refused') return
      const detail = `sink ${sink.name} refuses line ${line.seq}: ${why}`
      void log?.write({ kind: 'admin', action: 'sink_refused', detail })
    }),
  )
  if (webhook !== undefined) {
    const target = { ...webhook, timeoutMs: webhook.timeoutSeconds * 1000 }
    const detector = new AlertDetector({ challenges, refusals, canaryHosts })
    for (const of of alertInstances)
      shippers.push(shipper('alerts', createAlertSink({ detector, webhook: target }), undefined, of))
  }
  /** The oldest file of this log that somebody has yet to read; alerts may be the affair of another process. */
  const neededFrom = () => {
    const own = shippers.filter((one) => one.instance === instance).map(({ segment }) => segment)
    if (webhook !== undefined && !alertInstances.includes(instance))
      own.push(readPosition(positionPath('alerts', instance)).position.segment)
    return Math.min(Infinity, ...own)
  }

  const retire = async (opened: Pick<AuditLog, 'write'>) => {
    await retireFiles({
      folder: settings.path,
      instance,
      keys: parseVerifyKeys(readFileSync(keyFile, 'utf8'), keyFile),
      maxAgeMs: maxAgeSeconds === undefined ? undefined : maxAgeSeconds * 1000,
      maxBytes,
      maxSinkLagBytes,
      log: opened,
      signed: () => signedTo.reached(stopped.signal),
      neededFrom,
      nowMs: Date.now,
      logger,
      signal: stopped.signal,
    })
  }

  let lastFault = ''
  const verify = async (opened: Pick<AuditLog, 'write'>) => {
    const { outcome, fault: found } = await integrity.verify()
    if (outcome === 'unreadable') throw new Error('the audit log could not be read')
    const fault = found === undefined ? undefined : faultLine(found)
    if (fault !== undefined && fault !== lastFault) {
      logger.error({ fault }, 'the audit log does not verify')
      await opened.write({ kind: 'admin', action: 'verify_failed', detail: fault })
    }
    lastFault = fault ?? ''
  }

  /** One at a time; what fails is tried at the next turn. */
  const every = (ms: number, run: () => Promise<void>, failed: string) => {
    let isRunning = false
    const turn = async () => {
      if (isRunning || stopped.signal.aborted) return
      isRunning = true
      await run().catch(() => {
        if (!stopped.signal.aborted) logger.error({}, failed)
      })
      isRunning = false
    }
    timers.push(setInterval(() => void turn(), ms).unref())
  }

  return {
    start: (opened) => {
      log = opened
      for (const each of shippers) each.start()
      if (maxAgeSeconds !== undefined || maxBytes !== undefined)
        every(options.retentionMs ?? 60_000, () => retire(opened), 'the retention of the audit log failed')
      if (webhook !== undefined)
        every(settings.alerts.verifySeconds * 1000, () => verify(opened), 'the audit log could not be verified')
    },
    onCheckpoint: (line) => {
      signedTo.note(line)
      integrity.note(line)
    },
    integrity,
    sinks: async () => sinksByName(await Promise.all(shippers.map((each) => each.status()))),
    close: async () => {
      stopped.abort()
      for (const timer of timers) clearInterval(timer)
      await Promise.all(shippers.map((each) => each.close(LAST_LINES_MS)))
    },
  }
}
