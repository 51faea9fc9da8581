/**
 * Tenants' policies that were put through the control API: one file for each below the state folder, written whole or not at all. Every gateway on
 * the folder sees a change within a quarter of a second. What can't be read stops the start, and changes nothing later: a policy is never forgotten.
 */
import { hash } from 'node:crypto'
import { readFileSync, readdirSync, statSync } from 'node:fs'
import { mkdtemp, rename, rm, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { jsonSteps, layerPolicySchema } from '../../policies/index.ts'
import type { Clock } from '../clock.ts'
import { inSlices } from '../in-slices.ts'
import { faultCode, openFolder, syncFolder, unusable, writeWhole } from './folder.ts'
import { whyUnreadable } from '../unreadable.ts'

/** Milliseconds between two looks. */
const LOOK_EVERY_MS = 250

/** File systems tell times in steps: a change this soon after the last look is looked for again. */
const TIME_STEP_MS = 2_000

/** Tenants whose policies are kept at most, and the bytes of all their files: what is kept is also in memory. */
const MAX_TENANTS = 10_000
const MAX_TOTAL_BYTES = 64 * 1024 * 1024

const FILE_NAME = /^[0-9a-f]{64}\.json$/

const recordSchema = z.strictObject({
  tenant: z.string().min(1).max(100),
  policy: layerPolicySchema,
  changed_at: z.string(),
  author: z.string(),
})

/** A policy as it is kept. */
export type TenantPolicy = z.infer<typeof recordSchema>

/** The policies of a state folder. */
export interface TenantPolicies {
  readonly list: () => readonly TenantPolicy[]
  readonly get: (tenant: string) => TenantPolicy | undefined
  /**
   * Keeps a policy; it is on the disk when this resolves.
   * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`: then the old one stays
   */
  readonly put: (policy: TenantPolicy) => Promise<void>
  /** Forgets one. @throws SallyportError `SALLYPORT_STATE_UNUSABLE` */
  readonly remove: (tenant: string) => Promise<void>
  /** Looks now for what other processes changed; whether all that is on the disk is known. */
  readonly look: () => boolean
  /** Calls back with the tenants whose policies changed, here or by another process; returns what ends it. */
  readonly onChange: (listener: (tenants: readonly string[]) => void) => () => void
  /** Stops looking; idempotent. */
  readonly close: () => void
}

/**
 * Opens the policies below a state folder. `onFault` is told, once each, of what can't be read later.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`, also for a file that can't be read: whose policy it is, nobody knows then
 */
export async function openTenantPolicies(
  path: string,
  clock: Clock,
  onFault: (message: string) => void = () => undefined,
): Promise<TenantPolicies> {
  await openFolder(path)
  const listeners = new Set<(tenants: readonly string[]) => void>()
  let kept = readAll(path, clock.monotonicMs())
  let lastFault: string | undefined
  let seen = folderStamp(path)
  let changedMs = clock.monotonicMs()

  function look(): void {
    try {
      const stamp = folderStamp(path)
      // A folder that is gone says nothing about its policies; they stay until it is back.
      if (stamp === undefined) return
      if (stamp !== seen) changedMs = clock.monotonicMs()
      else if (clock.monotonicMs() - changedMs > TIME_STEP_MS) return
      const next = readAll(path, clock.monotonicMs(), kept)
      seen = stamp
      lastFault = undefined
      take(next)
    } catch (error) {
      const message = error instanceof Error ? error.message : 'unknown fault'
      if (message !== lastFault) onFault(`${message}; the policies that are known stay in force`)
      lastFault = message
    }
  }

  function take(next: Kept): void {
    const names = new Set([...kept.keys(), ...next.keys()])
    const changed = [...names].filter((name) => kept.get(name)?.text !== next.get(name)?.text)
    const tenants = changed.flatMap((name) => (next.get(name) ?? kept.get(name))?.policy.tenant ?? [])
    kept = next
    if (tenants.length > 0) for (const listener of [...listeners]) listener(tenants)
  }

  async function put(policy: TenantPolicy): Promise<void> {
    const name = fileName(policy.tenant)
    const text = `${await inSlices(jsonSteps(recordSchema.parse(policy)))}\n`
    const others = without(kept, name)
    if (others.length >= MAX_TENANTS) throw unusable(path, `holds the policies of ${MAX_TENANTS} tenants, and no more`)
    const bytes = others.reduce((sum, [, one]) => sum + one.text.length, text.length)
    if (bytes > MAX_TOTAL_BYTES) throw unusable(path, `would hold more than ${MAX_TOTAL_BYTES} bytes of policies`)
    if (folderStamp(path) === undefined) await restoreFolder(path, others)
    await openFolder(path)
    await writeWhole(join(path, name), text)
    // Not `others`: while it was written, another process may have changed something too.
    take(new Map([...without(kept, name), [name, { text, policy, stamp: '', sinceMs: 0 }]]))
  }

  async function remove(tenant: string): Promise<void> {
    const name = fileName(tenant)
    try {
      await unlink(join(path, name))
      await syncFolder(path)
    } catch (error) {
      if (faultCode(error) !== 'ENOENT') throw unusable(path, `can't be written (${whyUnreadable(error)})`, error)
    }
    take(new Map(without(kept, name)))
  }

  const timer = setInterval(look, LOOK_EVERY_MS).unref()
  return {
    list: () => [...kept.values()].map(({ policy }) => policy),
    get: (tenant) => kept.get(fileName(tenant))?.policy,
    put,
    remove,
    look: () => {
      look()
      return lastFault === undefined
    },
    onChange: (listener) => {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    close: () => {
      clearInterval(timer)
      listeners.clear()
    },
  }
}

interface KeptPolicy {
  readonly text: string
  readonly policy: TenantPolicy
  /** What changes with the file; empty before it was read. */
  readonly stamp: string
  /** Monotonic clock; since when the file has this stamp. */
  readonly sinceMs: number
}

type Kept = ReadonlyMap<string, KeptPolicy>

function without(kept: Kept, name: string) {
  return [...kept].filter(([other]) => other !== name)
}

/** Somebody deleted the folder: it is put back with all that is known in one step, so that nobody sees one without. */
async function restoreFolder(
  path: string,
  known: readonly (readonly [string, { readonly text: string }])[],
): Promise<void> {
  const draft = await mkdtemp(`${path}.`)
  for (const [name, { text }] of known) await writeWhole(join(draft, name), text)
  try {
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { recursive: true, force: true })
    throw unusable(path, `can't be put back (${faultCode(error)})`, error)
  }
}

/** A file that has been the same for a while is not read again, and what has the same text as before is not taken apart again. */
function readAll(path: string, nowMs: number, before: Kept = new Map()): Kept {
  const names = readdirSync(path).filter((name) => FILE_NAME.test(name))
  if (names.length > MAX_TENANTS) throw unusable(path, `holds more than ${MAX_TENANTS} policies`)
  const found = new Map<string, KeptPolicy>()
  let bytes = 0
  for (const name of names) {
    const { ino, size, mtimeNs, ctimeNs } = statSync(join(path, name), { bigint: true })
    const stamp = `${ino} ${size} ${mtimeNs} ${ctimeNs}`
    bytes += Number(size)
    if (bytes > MAX_TOTAL_BYTES) throw unusable(path, `holds more than ${MAX_TOTAL_BYTES} bytes of policies`)
    const known = before.get(name)
    const sinceMs = known?.stamp === stamp ? known.sinceMs : nowMs
    if (known !== undefined && nowMs - sinceMs > TIME_STEP_MS) {
      found.set(name, known)
      continue
    }
    const text = readFileSync(join(path, name), 'utf8')
    const policy = known?.text === text ? known.policy : parseRecord(path, name, text)
    found.set(name, { text, policy, stamp, sinceMs })
  }
  return found
}

function parseRecord(path: string, name: string, text: string): TenantPolicy {
  try {
    const policy = recordSchema.parse(JSON.parse(text))
    if (fileName(policy.tenant) === name) return policy
  } catch {
    // Told below, like a file under another tenant's name.
  }
  throw unusable(join(path, name), 'is no policy of a tenant; put the file of before back, or delete it')
}

/** A name of a tenant may be anything, so it never becomes a path. */
function fileName(tenant: string): string {
  return `${hash('sha256', tenant)}.json`
}

function folderStamp(path: string): string | undefined {
  const stats = statSync(path, { throwIfNoEntry: false, bigint: true })
  return stats && `${stats.ino} ${stats.mtimeNs}`
}
