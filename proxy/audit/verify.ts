/** Proves offline that a log was not cut, changed or reordered, or names the first fault. Never writes. */
import { z } from 'zod'
import { SallyportError } from '../../policies/error.ts'
import { hashLine } from './chain.ts'
import { isSignatureValid } from './checkpoint.ts'
import type { VerifyKey } from './key.ts'
import { isNoFile } from './open-segment.ts'
import { readLines } from './read-lines.ts'
import { bySegment, listSegmentNames, type SegmentFile, segmentsAt } from './segments.ts'
import { type Anchor, ChainCheck, type ChainFault } from './verify-chain.ts'

const anchorSchema = z.object({
  seq: z.int(),
  instance: z.string(),
  kind: z.literal('admin'),
  action: z.literal('checkpoint'),
  segment: z.int(),
  cause: z.string(),
  signer: z.string(),
})

/** What {@link verifyAudit} looks at. */
export interface VerifyOptions {
  /** Folders (every instance in them) or segment files. */
  readonly paths: readonly string[]
  /** Public keys of the checkpoints; without any the chain is checked, and the report says that signatures weren't. */
  readonly keys?: readonly VerifyKey[]
  /** Checkpoint lines kept elsewhere: each must be in the log, so nothing before it was replaced and nothing up to it was cut. */
  readonly anchors?: readonly string[]
  /** First segment that is expected, when earlier ones were archived. Default 1. */
  readonly fromSegment?: number
  readonly signal?: AbortSignal
}

/** The first thing that is wrong. */
export interface AuditFault {
  /** Stable, such as `line_changed`, `segment_missing`, `signature_invalid`. */
  readonly code: string
  readonly message: string
  readonly instance?: string
  readonly file?: string
  /** From 1. */
  readonly line?: number
  readonly seq?: number
}

/** One run of a gateway, from its `start` line. */
export interface RunReport {
  readonly firstSeq: number
  readonly startTime: string
  readonly lastSeq: number
  readonly endTime: string
  /** `stop`: in order. `unclean`: it was killed or failed, and a later run says so. `open`: no stop line and no later run; it is still running, or was killed. */
  readonly end: 'stop' | 'unclean' | 'open'
  /** Bytes of an unfinished last line. */
  readonly tornBytes: number
}

/** What was found for one instance. */
export interface InstanceReport {
  readonly instance: string
  readonly firstSegment: number
  readonly lastSegment: number
  readonly firstSeq: number
  readonly lastSeq: number
  readonly lines: number
  /** Lines that gap lines count as lost. */
  readonly lost: number
  /** SHA-256 of the last whole line, hex. */
  readonly head: string
  readonly checkpoints: number
  readonly lastCheckpoint: { readonly seq: number; readonly time: string } | undefined
  /** Lines after the last checkpoint: whoever can write the file can change or cut these unseen. */
  readonly unsignedLines: number
  readonly runs: readonly RunReport[]
}

/** The outcome. `fault` is there exactly when `ok` is false. */
export interface AuditVerification {
  readonly ok: boolean
  readonly signatures: 'checked' | 'unchecked'
  readonly fault?: AuditFault
  readonly instances: readonly InstanceReport[]
}

/**
 * Verifies every instance found in `paths`, streaming; stops at the first fault.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`: a path that isn't there or can't be read, no log in it, or an anchor that is no checkpoint
 */
export async function verifyAudit({
  paths,
  keys = [],
  anchors = [],
  fromSegment,
  signal,
}: VerifyOptions): Promise<AuditVerification> {
  const signatures = keys.length > 0 ? 'checked' : 'unchecked'
  const kept = anchors.map((line) => parseAnchor(line, keys))
  const logs = Map.groupBy(collectSegments(paths), ({ instance }) => instance)
  const instances: InstanceReport[] = []
  for (const [instance, segments] of logs) {
    const own = kept.filter((anchor) => anchor.instance === instance)
    const outcome = await verifyInstance(
      instance,
      segments,
      new ChainCheck(instance, keys, own, segments[0]?.number ?? 1),
      expectedFirst(segments, own, fromSegment),
      signal,
    )
    instances.push(outcome.report)
    if (outcome.fault !== undefined) return { ok: false, signatures, fault: outcome.fault, instances }
  }
  const absent = kept.find(({ instance }) => !logs.has(instance))
  if (absent === undefined) return { ok: true, signatures, instances }
  const fault = {
    code: 'instance_missing',
    instance: absent.instance,
    message: `there is a kept checkpoint of instance \`${absent.instance}\`, but no file of it`,
  }
  return { ok: false, signatures, fault, instances }
}

async function verifyInstance(
  instance: string,
  segments: readonly SegmentFile[],
  check: ChainCheck,
  firstExpected: number,
  signal: AbortSignal | undefined,
): Promise<{ readonly report: InstanceReport; readonly fault?: AuditFault }> {
  const first = segments[0]?.number ?? 1
  // Whether the files before were removed in order, a later line says.
  const isShort = first > firstExpected
  let expected = isShort ? first : firstExpected
  for (const segment of segments) {
    const fault = checkNumber(segment, expected, segment === segments[0]) ?? (await verifyFile(segment, check, signal))
    if (fault !== undefined) return { report: check.report(), fault: { instance, file: segment.path, ...fault } }
    expected = segment.number + 1
  }
  const last =
    (isShort && check.retiredTo < first - 1 ? missingFiles(firstExpected, first) : undefined) ?? check.finish()
  const file = segments.at(-1)?.path ?? ''
  return last === undefined
    ? { report: check.report() }
    : { report: check.report(), fault: { instance, file, ...last } }
}

function checkNumber({ number }: SegmentFile, expected: number, isFirst: boolean): ChainFault | undefined {
  if (number === expected) return undefined
  if (number < expected && isFirst)
    return { code: 'segment_unexpected', message: `file ${number} is there, but ${expected} was said to be the first` }
  if (number < expected) return { code: 'segment_duplicated', message: `file ${number} is there twice` }
  return missingFiles(expected, number)
}

function missingFiles(expected: number, found: number): ChainFault {
  const missing =
    found - 1 === expected ? `file ${expected} is missing` : `files ${expected} to ${found - 1} are missing`
  return { code: 'segment_missing', message: missing }
}

async function verifyFile(
  { path, number }: SegmentFile,
  check: ChainCheck,
  signal: AbortSignal | undefined,
): Promise<(ChainFault & { readonly line?: number }) | undefined> {
  check.beginFile(number)
  try {
    return await verifyLines(path, check, signal)
  } catch (error) {
    if (!(error instanceof SallyportError) || !isNoFile(error.cause)) throw error
    return { code: 'segment_foreign', message: 'it is no file: somebody put a link, a pipe or a folder in its place' }
  }
}

async function verifyLines(
  path: string,
  check: ChainCheck,
  signal: AbortSignal | undefined,
): Promise<(ChainFault & { readonly line?: number }) | undefined> {
  let count = 0
  let tornBytes = 0
  for await (const { lines, restBytes } of readLines(path, 0, signal)) {
    for (const line of lines) {
      count += 1
      const fault = check.line(line)
      if (fault !== undefined) return { ...fault, line: count }
    }
    tornBytes = restBytes
  }
  const fault = check.endFile(tornBytes, count > 0)
  return fault === undefined ? undefined : { ...fault, line: count + 1 }
}

/** Earlier files may be left out when the caller says so, or holds the checkpoint that closed the last of them. */
function expectedFirst(
  segments: readonly SegmentFile[],
  anchors: readonly Anchor[],
  fromSegment: number | undefined,
): number {
  const first = segments[0]?.number ?? 1
  return anchors.some(({ isClosing, segment }) => isClosing && segment === first - 1) ? first : (fromSegment ?? 1)
}

function collectSegments(paths: readonly string[]): readonly SegmentFile[] {
  const found = paths.flatMap((path) => segmentsAt(path, listSegmentNames))
  if (found.length === 0)
    throw new SallyportError(
      'SALLYPORT_AUDIT_UNREADABLE',
      `no audit log in ${paths.map((path) => `\`${path}\``).join(', ')}`,
    )
  return found.sort(bySegment)
}

function parseAnchor(text: string, keys: readonly VerifyKey[]): Anchor {
  const line = `${text.trimEnd()}\n`
  const checkpoint = anchorSchema.safeParse(parseJson(line))
  if (!checkpoint.success)
    throw new SallyportError('SALLYPORT_AUDIT_UNREADABLE', 'a kept checkpoint is no checkpoint line of an audit log')
  const { instance, seq, segment, cause, signer } = checkpoint.data
  const key = keys.find(({ id }) => id === signer)
  if (keys.length > 0 && (key === undefined || !isSignatureValid(line, key))) {
    throw new SallyportError(
      'SALLYPORT_AUDIT_UNREADABLE',
      `the kept checkpoint of line ${seq} is not signed by any of the keys`,
    )
  }
  return { instance, seq, segment, isClosing: cause === 'segment' || cause === 'stop', hash: hashLine(line) }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
