/** What the host keeps of each sandbox, so that any process of the same user finds, reaches and removes it: `<root>/<id>/`. */
import { randomBytes } from 'node:crypto'
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { lstat, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { z } from 'zod'
import { type EgressPolicy, type EgressPolicyData, egressPolicySchema, SallyportError } from '../policies/index.ts'
import { ownerOfThisProcess, stateOfOwner } from './owner.ts'

export { defaultRuntimeRoot } from '../proxy/index.ts'

const metaSchema = z.object({
  version: z.literal(1),
  id: z.string(),
  backend: z.string(),
  /** See `owner.ts`. */
  owner: z.string(),
  createdAtMs: z.number(),
  expiresAtMs: z.number().optional(),
  labels: z.record(z.string(), z.string()),
  tenant: z.string().optional(),
  /** Absent where it is the host's own code: then another process can't go on with it. */
  egress: egressPolicySchema.optional(),
  spare: z.literal(true).optional(),
})

/** What is known of a sandbox. Holds no secret. */
export interface SandboxMeta {
  readonly version: 1
  readonly id: string
  readonly backend: string
  readonly owner: string
  readonly createdAtMs: number
  readonly expiresAtMs?: number | undefined
  readonly labels: Readonly<Record<string, string>>
  readonly tenant?: string | undefined
  readonly egress?: EgressPolicyData | undefined
  /** It was started ahead, and nobody has asked for it yet. */
  readonly spare?: true | undefined
}

/** Where things are in the folder of a sandbox. */
export interface RuntimePaths {
  readonly folder: string
  readonly control: string
  readonly egress: string
  readonly gatewaySocket: string
  readonly workerToken: string
}

// What the kernel takes for the path of a unix socket, less the final NUL. macOS has four bytes less than Linux.
const MAX_SOCKET_PATH_BYTES = 103
const MAX_SANDBOXES = 10_000
const ID = /^sbx_[a-z0-9]{16}$/

/** A policy as it can be kept: the host's own code can't. */
export function dataOf(policy: EgressPolicy): EgressPolicyData | undefined {
  return policy.kind === 'resolver' ? undefined : policy
}

/** A fresh id: 80 random bits, fit for a file name, a label and the name of a container. */
export function newSandboxId(): string {
  // 32 letters and digits, so that no bit is lost or weighted.
  const alphabet = 'abcdefghijklmnopqrstuvwxyz234567'
  return `sbx_${[...randomBytes(16)].map((byte) => alphabet[byte & 31]).join('')}`
}

/** Whether a text is the id of a sandbox, and so safe in a path. */
export function isSandboxId(text: string): boolean {
  return ID.test(text)
}

/** @throws TypeError for a root that is relative, or so long that no socket fits below it */
export function checkRuntimeRoot(root: string): string {
  if (!path.isAbsolute(root)) throw new TypeError(`the runtime root \`${root}\` is not an absolute path`)
  const longest = pathsOf(path.normalize(root), `sbx_${'a'.repeat(16)}`).gatewaySocket
  if (Buffer.byteLength(longest) > MAX_SOCKET_PATH_BYTES) {
    throw new TypeError(`the runtime root \`${root}\` is too long for unix sockets below it; use a shorter one`)
  }
  return path.normalize(root)
}

/** Paths of a sandbox. */
export function pathsOf(root: string, id: string): RuntimePaths {
  const folder = path.join(root, id)
  return {
    folder,
    control: path.join(folder, 'control'),
    egress: path.join(folder, 'egress'),
    gatewaySocket: path.join(folder, 'egress', 'gateway.sock'),
    workerToken: path.join(folder, 'worker-token'),
  }
}

/**
 * Makes the root, mode 0700.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE` when somebody else owns it or may look into it: the bearers of the workers are there
 */
export async function openRuntimeRoot(root: string): Promise<void> {
  try {
    mkdirSync(root, { recursive: true, mode: 0o700 })
  } catch (error) {
    throw unusable(root, `can't be made (${(error as NodeJS.ErrnoException).code ?? 'unknown fault'})`, error)
  }
  const stat = await lstat(root)
  if (!stat.isDirectory()) throw unusable(root, 'is not a folder')
  if (stat.uid !== os.userInfo().uid) throw unusable(root, 'belongs to somebody else')
  if ((stat.mode & 0o077) !== 0) throw unusable(root, `is open to others; run \`chmod 700 ${root}\``)
}

/**
 * Makes the folder of a new sandbox, with the bearer of its worker. The egress folder may be read inside by any user; the root keeps others out. At one
 * stroke: it is little, and a start waits for it.
 */
export function makeRuntimeFolder(root: string, meta: SandboxMeta, workerToken: string): RuntimePaths {
  const paths = pathsOf(root, meta.id)
  mkdirSync(paths.folder, { mode: 0o700 })
  mkdirSync(paths.control, { mode: 0o700 })
  mkdirSync(paths.egress, { mode: 0o755 })
  writeFileSync(paths.workerToken, workerToken, { mode: 0o600, flag: 'wx' })
  const file = metaFile(root, meta)
  writeFileSync(`${file}.new`, textOf(meta), { mode: 0o600 })
  renameSync(`${file}.new`, file)
  return paths
}

/** Writes it whole or not at all. */
export async function writeMeta(root: string, meta: SandboxMeta): Promise<void> {
  const file = metaFile(root, meta)
  await writeFile(`${file}.new`, textOf(meta), { mode: 0o600 })
  await rename(`${file}.new`, file)
}

function metaFile(root: string, { id }: Pick<SandboxMeta, 'id'>): string {
  return path.join(root, id, 'meta.json')
}

function textOf(meta: SandboxMeta): string {
  return `${JSON.stringify(meta)}\n`
}

/** Undefined when there is none, or none that can be read. */
export async function readMeta(root: string, id: string): Promise<SandboxMeta | undefined> {
  if (!isSandboxId(id)) return undefined
  try {
    const meta = metaSchema.parse(JSON.parse(await readFile(metaFile(root, { id }), 'utf8')))
    return meta.id === id ? meta : undefined
  } catch {
    return undefined
  }
}

/** Of all sandboxes of a backend; none when the root is not there. */
export async function readMetas(root: string, backend: string): Promise<readonly SandboxMeta[]> {
  const names = await readdir(root).catch(() => [])
  const metas = await Promise.all(
    names
      .filter(isSandboxId)
      .slice(0, MAX_SANDBOXES)
      .map((id) => readMeta(root, id)),
  )
  return metas.filter((meta) => meta !== undefined).filter((meta) => meta.backend === backend)
}

/** The bearer of a worker. */
export async function readWorkerToken(root: string, id: string): Promise<string> {
  return (await readFile(pathsOf(root, id).workerToken, 'utf8')).trim()
}

/** Removes everything of a sandbox; one that is not there is fine. */
export async function removeRuntimeFolder(root: string, id: string): Promise<void> {
  if (!isSandboxId(id)) throw new TypeError('not the id of a sandbox')
  await rm(path.join(root, id), { recursive: true, force: true, maxRetries: 3 })
}

/** Takes a claim back, when nothing came of it. */
export async function unclaim(root: string, { id, owner }: SandboxMeta): Promise<void> {
  await rm(path.join(root, id, `claim-${owner}`), { force: true })
}

/** Whether this process is the first that asks to take over a sandbox whose owner is gone. Who claimed it and is gone as well does not count. */
export async function claim(root: string, { id, owner }: SandboxMeta): Promise<boolean> {
  const file = path.join(root, id, `claim-${owner}`)
  for (let attempt = 0; attempt < 2; attempt++) {
    try {
      await writeFile(file, ownerOfThisProcess(), { flag: 'wx', mode: 0o600 })
      return true
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      if ((await stateOfOwner(await readFile(file, 'utf8').catch(() => ''))) !== 'gone') return false
      await rm(file, { force: true })
    }
  }
  return false
}

function unusable(root: string, what: string, cause?: unknown): SallyportError {
  return new SallyportError('SALLYPORT_STATE_UNUSABLE', `the runtime folder \`${root}\` ${what}`, { cause })
}
