/** The names of the files of a log: `audit-<instance>-<number>.jsonl`, numbered from 1 per instance. */
import { readdirSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import { whyUnreadable } from '../unreadable.ts'

/** One file of a log. */
export interface SegmentFile {
  readonly path: string
  readonly instance: string
  readonly number: number
}

const INSTANCE = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$/
const SEGMENT = /^audit-([A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?)-(\d{6,12})\.jsonl$/

/** Whether `name` is fit for the name of a file: letters, digits, and inside also dots, hyphens and underscores; 64 at most. */
export function isInstanceName(name: string): boolean {
  return INSTANCE.test(name)
}

/** `audit-gw-000001.jsonl`: in order also when sorted as text. */
export function segmentName(instance: string, number: number): string {
  return `audit-${instance}-${String(number).padStart(6, '0')}.jsonl`
}

/** What a file is called says; undefined when it is no segment. */
export function parseSegmentPath(path: string): SegmentFile | undefined {
  const match = SEGMENT.exec(basename(path))
  const [, instance, digits] = match ?? []
  if (instance === undefined || digits === undefined) return undefined
  return { path, instance, number: Number(digits) }
}

/** The segments in a folder, by instance and number. What has the name of one and is no file (a link, a pipe, a folder) is none: a gateway wrote no such. */
export function listSegments(folder: string): readonly SegmentFile[] {
  return segmentsOf(
    folder,
    readdirSync(folder, { withFileTypes: true }).flatMap((entry) => (entry.isFile() ? [entry.name] : [])),
  )
}

/** The same with what is no file, for whoever is to say so. */
export function listSegmentNames(folder: string): readonly SegmentFile[] {
  return segmentsOf(folder, readdirSync(folder))
}

function segmentsOf(folder: string, names: readonly string[]): readonly SegmentFile[] {
  const found: SegmentFile[] = []
  for (const name of names) {
    const segment = parseSegmentPath(join(folder, name))
    if (segment !== undefined) found.push(segment)
  }
  return found.sort(bySegment)
}

/**
 * What `path` names: the segments in a folder, as `list` finds them, or one file.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`
 */
export function segmentsAt(path: string, list = listSegments): readonly SegmentFile[] {
  try {
    if (statSync(path).isDirectory()) return list(path)
  } catch (error) {
    throw new SallyportError(
      'SALLYPORT_AUDIT_UNREADABLE',
      `audit log \`${path}\` can't be read (${whyUnreadable(error)})`,
      { cause: error },
    )
  }
  const segment = parseSegmentPath(path)
  if (segment === undefined)
    throw new SallyportError(
      'SALLYPORT_AUDIT_UNREADABLE',
      `\`${path}\` is not named as an audit file is: \`audit-<instance>-<number>.jsonl\``,
    )
  return [segment]
}

/** Each is a file that is read, and a place that is remembered. */
const MAX_INSTANCES = 1_000

/**
 * The segments that `path` names, of each instance or of one.
 * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`, also for more instances than are read side by side
 */
export function segmentsByInstance(path: string, wanted?: string): ReadonlyMap<string, readonly SegmentFile[]> {
  const segments = segmentsAt(path)
  const logs = Map.groupBy(
    wanted === undefined ? segments : segments.filter(({ instance }) => instance === wanted),
    ({ instance }) => instance,
  )
  if (logs.size <= MAX_INSTANCES) return logs
  throw new SallyportError(
    'SALLYPORT_AUDIT_UNREADABLE',
    `\`${path}\` holds the logs of ${logs.size} instances, and ${MAX_INSTANCES} are read side by side: name one instance`,
  )
}

/** Order of {@link listSegments}. */
export function bySegment(left: SegmentFile, right: SegmentFile): number {
  if (left.instance !== right.instance) return left.instance < right.instance ? -1 : 1
  return left.number - right.number
}
