/**
 * Removes the oldest closed files of an instance by age and size. Each is verified first; what was found is written down, and signed, before the file goes.
 * It never touches the newest file, and never leaves a hole: files go from the oldest on.
 */
import { unlink, stat } from 'node:fs/promises'
import type { VerifyKey } from '../key.ts'
import type { AuditLogger } from '../log.ts'
import type { AdminEntry, AuditLog } from '../record.ts'
import { errorCode } from '../segment.ts'
import { listSegments, type SegmentFile } from '../segments.ts'
import { lastTimeMs } from './last-time.ts'
import { type AuditVerification, verifyAudit } from '../verify.ts'

/** When files go; undefined: not for that. */
export interface RetentionRules {
  readonly maxAgeMs?: number | undefined
  readonly maxBytes?: number | undefined
  /** A file that a sink still needs stays until this much follows it. */
  readonly maxSinkLagBytes: number
}

/** What {@link retireFiles} needs. */
export interface RetentionOptions extends RetentionRules {
  readonly folder: string
  readonly instance: string
  readonly keys: readonly VerifyKey[]
  readonly log: Pick<AuditLog, 'write'>
  /** Resolves `true` once all lines that are written now are signed; `false` when that can't be waited for. */
  readonly signed: () => Promise<boolean>
  /** Number of the oldest file that a sink still needs; Infinity without sinks. */
  readonly neededFrom: () => number
  readonly nowMs: () => number
  readonly logger: AuditLogger
  /** A file that does not verify. */
  readonly onUnverified?: (fault: string) => void
  readonly signal?: AbortSignal
}

/** How many files went. */
export async function retireFiles(options: RetentionOptions): Promise<number> {
  const { folder, instance, nowMs, logger, signal } = options
  let count = 0
  for (;;) {
    const segments = listSegments(folder).filter((segment) => segment.instance === instance)
    const sizes = await Promise.all(segments.map(async ({ path }) => (await stat(path)).size))
    const [oldest, next] = segments
    if (oldest === undefined || next === undefined || signal?.aborted === true) return count
    if (!(await isOver(oldest, sizes, options, nowMs()))) return count
    if (!mayGo(oldest, sizes, options)) return count
    const record = await recordOf(oldest, next, options)
    const written = await options.log.write(record)
    if (!written || !(await options.signed())) return count
    try {
      await unlink(oldest.path)
    } catch (error) {
      logger.error({ code: errorCode(error), file: oldest.number }, 'a file of the audit log could not be removed')
      return count
    }
    logger.info({ file: oldest.number }, 'a file of the audit log was removed, as the retention says')
    count += 1
  }
}

async function isOver(
  oldest: SegmentFile,
  sizes: readonly number[],
  { maxAgeMs, maxBytes }: RetentionRules,
  nowMs: number,
): Promise<boolean> {
  if (maxBytes !== undefined && sum(sizes) > maxBytes) return true
  if (maxAgeMs === undefined) return false
  const lastMs = await lastTimeMs(oldest.path)
  return lastMs !== undefined && nowMs - lastMs > maxAgeMs
}

function mayGo(oldest: SegmentFile, sizes: readonly number[], options: RetentionOptions): boolean {
  return options.neededFrom() > oldest.number || sum(sizes.slice(1)) > options.maxSinkLagBytes
}

/** The next file is looked at too: it says how this one ended. */
async function recordOf(
  oldest: SegmentFile,
  next: SegmentFile,
  options: RetentionOptions,
): Promise<AdminEntry & { readonly segment: number }> {
  const verification = await verifyAudit({
    paths: [oldest.path, next.path],
    keys: options.keys,
    fromSegment: oldest.number,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  })
  const found = describe(verification)
  if (!verification.ok) options.onUnverified?.(found)
  return {
    kind: 'admin',
    action: 'retention',
    segment: oldest.number,
    detail: `file ${oldest.number} is removed; ${found}`,
  }
}

function describe({ ok, fault }: AuditVerification): string {
  return ok ? 'it was verified' : `NOT verified: ${fault?.code ?? 'unknown'}, ${fault?.message ?? ''}`
}

function sum(sizes: readonly number[]): number {
  return sizes.reduce((total, size) => total + size, 0)
}
