/** What the control API asks the thread that reads the audit log, and what it answers. Plain data. */
import { z } from 'zod'
import type { AuditFilters } from '../../audit/match.ts'
import type { AuditLine } from '../../audit/schema.ts'
import type { AuditSummary, SummaryOptions } from '../audit-summary.ts'

/** What the threads are started with. */
export const readerSchema = z.strictObject({ job: z.literal('sallyport-audit-reader'), folder: z.string() })
export const indexerSchema = z.strictObject({ job: z.literal('sallyport-audit-indexer'), folder: z.string() })

/** Find lines, or count them. */
export type ReaderJob =
  | {
      readonly kind: 'lines'
      readonly filters: AuditFilters
      readonly limit: number
      readonly cursor: string | undefined
    }
  | { readonly kind: 'summary'; readonly filters: AuditFilters; readonly options: SummaryOptions }

/** Of `lines`: a page of them, and where the next one begins. */
export interface LinesFound {
  readonly lines: readonly AuditLine[]
  /** Absent when there are no more; a page of long lines may hold fewer than were asked for. */
  readonly cursor: string | undefined
}

/** To the thread. */
export type ToReader = { readonly id: number; readonly job: ReaderJob } | { readonly id: number; readonly cancel: true }

/** From the thread; a fault in the words of an error of ours, any other by its name alone. */
export type FromReader =
  | { readonly id: number; readonly found: LinesFound }
  | { readonly id: number; readonly counted: AuditSummary }
  | { readonly id: number; readonly unreadable: string }
  | { readonly id: number; readonly fault: string }
