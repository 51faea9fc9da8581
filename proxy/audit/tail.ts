/** Follows a running log over rotation and restarts. */
import type { AuditFilters } from './query.ts'
import type { AuditLine } from './schema.ts'

/** What {@link tailAudit} follows. */
export interface TailOptions {
  /** Folder of the log. */
  readonly path: string
  readonly filters?: AuditFilters
  /** How many of the last matching lines come first. Default 10. */
  readonly lines?: number
  /** Goes on with new lines until `signal` aborts. Default true. */
  readonly follow?: boolean
  /** How often the files are looked at. Default 200 ms. */
  readonly pollMs?: number
  readonly signal?: AbortSignal
}

/**
 * The last lines, then every new one.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`: no such folder
 */
export function tailAudit(options: TailOptions): AsyncIterableIterator<{ readonly line: AuditLine; readonly text: string }> {
  throw new Error(`not written yet: ${options.path}`)
}
