/** Finds lines in a log, in order of time, streaming with bounded memory. Trusts nothing it reads and proves nothing; see verify.ts. */
import type { AuditLine } from './schema.ts'

/** All given filters must hold; texts are compared whole. */
export interface AuditFilters {
  readonly instance?: string
  readonly kind?: string
  readonly tenant?: string
  readonly sandbox?: string
  readonly host?: string
  readonly reason?: string
  readonly decision?: string
  readonly effective?: string
  readonly request_id?: string
  readonly token_id?: string
  /** Inclusive, milliseconds since the epoch. */
  readonly sinceMs?: number
  /** Exclusive, milliseconds since the epoch. */
  readonly untilMs?: number
}

/** What {@link queryAudit} looks for. */
export interface QueryOptions {
  /** Folder, or one segment file. */
  readonly path: string
  readonly filters?: AuditFilters
  /** Most lines given back. Default: no limit (streaming). */
  readonly limit?: number
  /** From an earlier {@link Found}: goes on after that line. */
  readonly cursor?: string
  readonly signal?: AbortSignal
}

/** One line that was found. */
export interface Found {
  readonly line: AuditLine
  /** The line as it is in the file, without its newline. */
  readonly text: string
  /** Where to go on after this line. */
  readonly cursor: () => string
}

/**
 * The lines for which all filters hold.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`: no such folder or file, or a cursor that doesn't fit
 */
export function queryAudit(options: QueryOptions): AsyncIterableIterator<Found> {
  throw new Error(`not written yet: ${options.path}`)
}
