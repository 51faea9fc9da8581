/** Opens files of policies, and nothing that is not one: no pipe, no device, nothing outside its folder, nothing that others may write, nothing large. */
import {
  accessSync,
  closeSync,
  constants,
  fstatSync,
  openSync,
  readSync,
  realpathSync,
  statSync,
  type BigIntStats,
} from 'node:fs'
import { dirname, sep } from 'node:path'
import { SallyportError } from '../../../policies/index.ts'
import { isLarge, largeDocuments } from '../../documents/large-documents.ts'
import { DocumentFault, parseDocument } from '../../documents/parse-document.ts'
import type { Waits } from '../../in-slices.ts'
import { whyUnreadable } from '../../unreadable.ts'

/** A list of a policy has 100,000 entries at most, of 40 bytes or so. */
const MAX_JSON_BYTES = 4_194_304
/** To take YAML apart costs a hundred times as much. */
const MAX_YAML_BYTES = 1_048_576
/** One file with the policies of all tenants. */
export const MAX_ALL_BYTES = { json: MAX_JSON_BYTES, yaml: 2 * MAX_YAML_BYTES }

const WRITABLE_BY_OTHERS = 0o022n

/** What changes with the content of a file, or with which file it is; of one that can't be looked at, why. */
export function fileStamp(path: string): string {
  try {
    return stampOf(statSync(path, { bigint: true }))
  } catch (error) {
    return whyUnreadable(error)
  }
}

/**
 * Where a path leads, when that is the operator's: a folder or file of root or of the gateway's user that nobody else may write.
 * @throws SallyportError `SALLYPORT_POLICY_INVALID`
 */
export function trustedPlace(path: string): { readonly path: string; readonly stats: BigIntStats } {
  try {
    const real = realpathSync(path)
    const stats = statSync(real, { bigint: true })
    checkOwner(real, stats)
    return { path: real, stats }
  } catch (error) {
    if (error instanceof SallyportError) throw error
    throw unusable(path, `can't be read (${whyUnreadable(error)})`)
  }
}

/** Where and how a file is read. */
export interface PolicyFileOptions {
  /** What its real path must be in. */
  readonly folder?: string
  readonly maxBytes?: typeof MAX_ALL_BYTES
  /** Waits for nothing: before anybody is served. */
  readonly isFirst: boolean
}

/**
 * The value in a file: JSON where its name says so, else YAML. A large one is read beside everything else, unless it is the first time.
 * @throws SallyportError `SALLYPORT_POLICY_INVALID` with one line; it holds nothing of the file
 */
export function* readPolicyFile(
  path: string,
  { folder, maxBytes = { json: MAX_JSON_BYTES, yaml: MAX_YAML_BYTES }, isFirst }: PolicyFileOptions,
): Waits<{ readonly value: unknown; readonly stamp: string }> {
  const { path: real, stats } = trustedPlace(path)
  if (folder !== undefined && !real.startsWith(folder + sep)) throw unusable(path, 'leads out of its folder')
  if (folder !== undefined && dirname(real) !== folder) trustedPlace(dirname(real))
  if (!stats.isFile()) throw unusable(path, 'is not a file')
  const isJson = path.endsWith('.json')
  const { bytes, stamp } = readBounded(path, real, isJson ? maxBytes.json : maxBytes.yaml, isJson ? '' : `; as JSON (\`.json\`) it may have ${maxBytes.json}`) // prettier-ignore
  const kind = isJson ? 'json' : 'yaml'
  try {
    if (isFirst || !isLarge(kind, bytes)) return { value: parseDocument(kind, bytes), stamp }
    let outcome: { readonly value: unknown } | { readonly fault: Error } | undefined
    yield largeDocuments.read(kind, bytes, true).then(
      (value) => void (outcome = { value }),
      (fault: unknown) => void (outcome = { fault: fault instanceof Error ? fault : new DocumentFault('ended') }),
    )
    if (outcome === undefined || 'fault' in outcome) throw outcome?.fault ?? new DocumentFault('ended')
    return { value: outcome.value, stamp }
  } catch (error) {
    throw error instanceof DocumentFault ? unusable(path, error.message) : error
  }
}

/** The message for a file or folder of policies. */
export function unusable(path: string, what: string): SallyportError {
  return new SallyportError('SALLYPORT_POLICY_INVALID', `\`${path}\` ${what}`)
}

function readBounded(
  path: string,
  real: string,
  maxBytes: number,
  advice: string,
): { readonly bytes: Uint8Array; readonly stamp: string } {
  let fd: number | undefined
  try {
    // What is put in its place meanwhile is not followed, and not waited for.
    fd = openSync(real, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW)
    const stats = fstatSync(fd, { bigint: true })
    if (!stats.isFile()) throw unusable(path, 'is not a file')
    if (stats.size > BigInt(maxBytes)) throw unusable(path, `is larger than ${maxBytes} bytes${advice}`)
    const buffer = Buffer.alloc(maxBytes + 1 < Number(stats.size) + 1 ? maxBytes + 1 : Number(stats.size) + 1)
    let length = 0
    for (let count = -1; count !== 0 && length < buffer.length; length += count)
      count = readSync(fd, buffer, length, buffer.length - length, length)
    if (length !== Number(stats.size) || stampOf(fstatSync(fd, { bigint: true })) !== stampOf(stats))
      throw unusable(path, 'is being written')
    return { bytes: buffer.subarray(0, length), stamp: stampOf(stats) }
  } catch (error) {
    if (error instanceof SallyportError) throw error
    throw unusable(path, `can't be read (${whyUnreadable(error)})`)
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

/** As for the state folder, but root may own it too, and where nothing can be written (a ConfigMap) the mode means nothing. */
function checkOwner(path: string, stats: BigIntStats): void {
  const user = process.geteuid?.()
  if (user === undefined) return
  if (stats.uid !== 0n && stats.uid !== BigInt(user))
    throw unusable(path, `belongs to user ${stats.uid}, and the gateway runs as user ${user}`)
  if ((stats.mode & WRITABLE_BY_OTHERS) !== 0n && !isReadOnly(path))
    throw unusable(path, 'can be written by other users; take that away with chmod go-w')
}

function isReadOnly(path: string): boolean {
  try {
    accessSync(path, constants.W_OK)
    return false
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EROFS'
  }
}

function stampOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`
}
