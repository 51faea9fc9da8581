/** Writes the ends of tunnels down that a killed process of the same log left open. */
import type { Clock } from '../clock.ts'
import type { CloseReason } from '../reasons.ts'
import { findLostTunnels, LOST_CLOSED, LOST_LEFT } from './lost-tunnels.ts'
import type { AuditLog } from './record.ts'
import { listSegments, type SegmentFile } from './segments.ts'

/** The files of a log that is about to be opened; none where there is no folder yet. */
export function earlierFiles(folder: string, instance: string): readonly SegmentFile[] {
  try {
    return listSegments(folder).filter((file) => file.instance === instance)
  } catch {
    // Opening the log says what is wrong.
    return []
  }
}

/**
 * Looks for them beside everything else. Where it is told to end before it has found them, or can't, the log says so for the run after this one.
 * @throws the system's error
 */
export async function closeLostTunnels(options: {
  readonly files: readonly SegmentFile[]
  readonly audit: Pick<AuditLog, 'write'>
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly onClose: (end: {
    readonly closeReason: CloseReason
    readonly durationMs: number
    readonly bytesIn: number
    readonly bytesOut: number
  }) => void
}): Promise<void> {
  const { files, audit, clock, signal, onClose } = options
  if (files.length === 0) return
  const leave = (): void => void audit.write({ kind: 'admin', action: LOST_LEFT })
  // Written at the signal itself: whoever gives it closes the log next.
  signal.addEventListener('abort', leave)
  const lost = await findLostTunnels(files, { nowMs: clock.wallMs, signal })
    .catch((error: unknown) => {
      if (signal.aborted) return undefined
      leave()
      throw error
    })
    .finally(() => signal.removeEventListener('abort', leave))
  if (lost === undefined || signal.aborted) return
  for (const close of lost.closes) {
    onClose({ closeReason: close.close_reason, durationMs: close.duration_ms, bytesIn: 0, bytesOut: 0 })
    void audit.write(close)
  }
  const since = lost.stoppedAt === undefined ? '' : `; files before ${lost.stoppedAt} were not looked at`
  const detail = `${lost.closes.length} tunnels of a process that was killed${since}`
  await audit.write({ kind: 'admin', action: LOST_CLOSED, detail })
}
