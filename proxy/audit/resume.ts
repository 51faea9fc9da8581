/** Finds where the last run of an instance stopped, so that the next one continues its chain. Reads only the end of the last files. */
import { closeSync, fstatSync, readFileSync, readSync } from 'node:fs'
import { SallyportError } from '../../policies/error.ts'
import { type ChainState, GENESIS, hashLine } from './chain.ts'
import { isSignatureValid } from './checkpoint.ts'
import type { VerifyKey } from './key.ts'
import type { PreviousEnd } from './line.ts'
import { openSegmentSync } from './open-segment.ts'
import { listSegmentNames, type SegmentFile } from './segments.ts'

/** Where to go on, and what to say of the run before. */
export interface Resumed {
  readonly chain: ChainState
  readonly nextNumber: number
  readonly previous: PreviousEnd
  readonly tornBytes: number
  readonly detail?: string
}

/** More than the longest line. */
const TAIL_BYTES = 1 << 20

/**
 * Reads the end of the log of `instance` in `folder`, and the kept head where there is one.
 * @throws SallyportError `SALLYPORT_AUDIT_UNWRITABLE` when the end of the log is no log
 */
export function resumeLog(folder: string, instance: string, headPath: string | undefined, key: VerifyKey): Resumed {
  const segments = listSegmentNames(folder).filter((segment) => segment.instance === instance)
  const onDisk = resumeFromFiles(segments)
  const head = headPath === undefined ? undefined : readHead(headPath, instance, key)
  if (head === undefined || head.chain.seq <= onDisk.chain.seq) return onDisk
  const found = onDisk.chain.seq === 0 ? 'no line is in the folder' : `the files end at line ${onDisk.chain.seq}`
  return {
    chain: head.chain,
    nextNumber: Math.max(onDisk.nextNumber, head.segment + 1),
    previous: 'missing',
    tornBytes: onDisk.tornBytes,
    detail: `line ${head.chain.seq} had been signed, but ${found}`,
  }
}

function resumeFromFiles(segments: readonly SegmentFile[]): Resumed {
  const nextNumber = (segments.at(-1)?.number ?? 0) + 1
  let tornBytes = 0
  for (const segment of segments.toReversed()) {
    const end = readEnd(segment)
    tornBytes += end.tornBytes
    if (end.last !== undefined) {
      const stopped = tornBytes === 0 && end.last.cause === 'stop'
      return { chain: end.last.chain, nextNumber, previous: stopped ? 'stop' : 'unclean', tornBytes }
    }
  }
  return { chain: GENESIS, nextNumber, previous: segments.length === 0 ? 'none' : 'unclean', tornBytes }
}

interface LastLine {
  readonly chain: ChainState
  readonly cause: string | undefined
}

function readEnd(segment: SegmentFile): { readonly last: LastLine | undefined; readonly tornBytes: number } {
  const { bytes, size } = readTail(segment.path)
  let end = bytes.lastIndexOf(10) + 1
  while (end > 0) {
    const start = end === 1 ? 0 : bytes.lastIndexOf(10, end - 2) + 1
    const last = readLast(bytes.subarray(start, end), segment.instance)
    if (last !== undefined) return { last, tornBytes: bytes.length - end }
    end = start
  }
  if (size > bytes.length) {
    throw new SallyportError(
      'SALLYPORT_AUDIT_UNWRITABLE',
      `audit log: the end of \`${segment.path}\` holds no audit line; move the file away and keep it`,
    )
  }
  return { last: undefined, tornBytes: size }
}

function readTail(path: string): { readonly bytes: Buffer; readonly size: number } {
  const fd = openSegmentSync(path)
  try {
    const { size } = fstatSync(fd)
    const bytes = Buffer.alloc(Math.min(size, TAIL_BYTES))
    const count = readSync(fd, bytes, 0, bytes.length, size - bytes.length)
    return { bytes: bytes.subarray(0, count), size }
  } finally {
    closeSync(fd)
  }
}

function readLast(line: Buffer, instance: string): LastLine | undefined {
  try {
    const value: unknown = JSON.parse(line.toString('latin1'))
    if (typeof value !== 'object' || value === null || !('seq' in value) || !('instance' in value)) return undefined
    if (typeof value.seq !== 'number' || !Number.isSafeInteger(value.seq) || value.instance !== instance)
      return undefined
    const cause = 'cause' in value && typeof value.cause === 'string' ? value.cause : undefined
    return { chain: { seq: value.seq, head: hashLine(line) }, cause }
  } catch {
    return undefined
  }
}

/** The last checkpoint as it was kept apart from the log; one that isn't signed with the own key says nothing. */
function readHead(
  path: string,
  instance: string,
  key: VerifyKey,
): { readonly chain: ChainState; readonly segment: number } | undefined {
  try {
    const line = readFileSync(path, 'latin1')
    const value: unknown = JSON.parse(line)
    const last = readLast(Buffer.from(line, 'latin1'), instance)
    if (last === undefined || !isSignatureValid(line, key)) return undefined
    const segment = typeof value === 'object' && value !== null && 'segment' in value ? value.segment : undefined
    return typeof segment === 'number' ? { chain: last.chain, segment } : undefined
  } catch {
    return undefined
  }
}
