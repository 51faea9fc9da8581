/** `/v1/audit/integrity`: the last checkpoint, and whether the log verified when it was last looked at. Asking costs nothing; a verification runs in a thread of its own. */
import path from 'node:path'
import { z } from 'zod'
import type { AuditIntegrity, VerificationEnd } from '../../audit/integrity.ts'
import type { Control } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { instant } from '../schemas.ts'

/** Whoever asks for a verification sooner gets the one that was made. */
const FRESH_MS = 5_000

const verification = z.object({
  outcome: z
    .enum(['verified', 'failed', 'unreadable'])
    .describe('`unreadable`: it could not be done, or took more than ten minutes; nothing is known.'),
  startedAt: instant,
  endedAt: instant,
  lines: z.int().nonnegative().optional().describe('Read and right, up to the fault if there is one.'),
  files: z.int().nonnegative().optional(),
  lastSeq: z.int().nonnegative().optional().describe('Number of the last line that was read.'),
  checkpoints: z.int().nonnegative().optional(),
  unsignedLines: z.int().nonnegative().optional().describe('After the last checkpoint: these could be changed unseen.'),
  lostLines: z.int().nonnegative().optional().describe('That `gap` lines count as lost.'),
  fault: z
    .object({
      code: z.string(),
      message: z.string(),
      file: z.string().optional(),
      line: z.int().positive().optional(),
    })
    .optional()
    .describe('The first thing that is wrong.'),
})

const reply = z.object({
  instance: z.string().describe('Of this gateway: other instances in the folder are for `sallyport audit verify`.'),
  writable: z.boolean(),
  lastCheckpoint: z
    .object({
      seq: z.int().positive(),
      time: instant,
      segment: z.int().positive().optional(),
      signer: z.string().optional(),
    })
    .optional()
    .describe('The last one of this run.'),
  verifying: z.boolean().describe('One is underway.'),
  verification: verification.optional().describe('The last one of this run.'),
})

/** What the routes answer. */
export type IntegrityShown = z.output<typeof reply>

/** The routes. */
export function integrityRoutes({ audit, auditService }: Control): readonly AdminRoute[] {
  const { integrity } = auditService
  const shown = (): z.input<typeof reply> => shownIntegrity(integrity.read(), audit.isWritable())
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/audit/integrity',
      id: 'readIntegrity',
      tag: 'audit',
      summary: 'Say what the last checkpoint is, and whether the log verified when it was last looked at',
      scopes: ['read'],
      errors: [],
      reply,
      handle: shown,
    }),
    defineRoute({
      method: 'POST',
      path: '/v1/audit:verify',
      id: 'verifyAudit',
      tag: 'audit',
      summary: 'Begin to verify the log of this gateway, unless that is underway or was done a moment ago',
      scopes: ['read'],
      status: 202,
      errors: [],
      reply,
      handle: () => {
        void integrity.verify(FRESH_MS)
        return shown()
      },
    }),
  ]
}

function shownIntegrity(
  { instance, lastCheckpoint, isVerifying, last }: AuditIntegrity,
  writable: boolean,
): z.input<typeof reply> {
  return {
    instance,
    writable,
    ...(lastCheckpoint && { lastCheckpoint: withoutAbsent(lastCheckpoint) }),
    verifying: isVerifying,
    ...(last && { verification: shownEnd(last) }),
  }
}

function shownEnd({ outcome, startedMs, endedMs, fault, report }: VerificationEnd): z.input<typeof verification> {
  return {
    outcome,
    startedAt: new Date(startedMs).toISOString(),
    endedAt: new Date(endedMs).toISOString(),
    ...(report && {
      lines: report.lines,
      files: report.lastSegment - report.firstSegment + 1,
      lastSeq: report.lastSeq,
      checkpoints: report.checkpoints,
      unsignedLines: report.unsignedLines,
      lostLines: report.lost,
    }),
    ...(fault && {
      fault: withoutAbsent({
        code: fault.code,
        message: fault.message,
        file: fault.file === undefined ? undefined : path.basename(fault.file),
        line: fault.line,
      }),
    }),
  }
}

type Present<T> = { [Key in keyof T]: Exclude<T[Key], undefined> }

function withoutAbsent<T extends object>(value: T): Present<T> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as Present<T>
}
