/**
 * A folder with a file for each tenant. Sees what is renamed into it, written in place, taken away, or swapped by a link in it or above it (as a mounted ConfigMap is),
 * at the second look that finds it the same.
 */
import { opendirSync, watch, type FSWatcher } from 'node:fs'
import { join } from 'node:path'
import type { Clock } from '../../clock.ts'
import type { FileLayers } from './file-layers.ts'
import { readFileName, type NamedFile } from './file-name.ts'
import { fileStamp, readPolicyFile, trustedPlace, unusable } from './read-policy-file.ts'
import { Settling } from './settling.ts'
import { SallyportError } from '../../../policies/index.ts'
import type { Waits } from '../../in-slices.ts'

/** As many tenants as the control API keeps. */
const MAX_TENANTS = 10_000
/** Names in the folder, others too. */
const MAX_NAMES = 20_000
/** File systems tell times in steps: a folder that changed is listed anew for so long, where the system does not tell of changes. */
const TIME_STEP_MS = 2_000
/** Files that are looked at each time, in turn, for changes that the system did not tell of. */
const LOOKED_AT = 200

/** Reading many changed files is spread over several looks, each of at most so much for reading, and one file more: what was read is told in between. */
const BUSY_MS = 50

/** Somewhere that policies are looked for. */
export interface PolicyPlace {
  /**
   * Looks, and takes what changed. `isFirst`: takes everything as it is.
   * @throws SallyportError when it is out of reach
   */
  readonly look: (isFirst: boolean) => Waits<void>
  readonly close: () => void
}

/** Opens one; reads nothing yet. */
export function policyFolder(path: string, layers: FileLayers, clock: Clock): PolicyPlace {
  const settling = new Settling()
  const missing = new Set<string>()
  let names: ReadonlyMap<string, NamedFile> = new Map()
  let files: ReadonlyMap<string, readonly string[]> = new Map()
  let order: readonly string[] = []
  let next = 0
  let listed = ''
  let place = ''
  let changedMs = -Infinity
  let watcher: FSWatcher | undefined
  /** Names that the system told of since the last look; `all` where it may be any. */
  let told = new Set<string>()
  let isAll = true
  let listFault: SallyportError | undefined

  return {
    *look(isFirst) {
      const { path: real, stats } = trustedPlace(path)
      if (!stats.isDirectory()) throw unusable(path, 'is not a folder any more')
      const here = `${real} ${stats.dev} ${stats.ino}`
      if (here !== place) follow(real)
      place = here
      const stamp = `${here} ${stats.mtimeNs} ${stats.ctimeNs}`
      if (stamp !== listed) changedMs = clock.monotonicMs()
      const isUntold = watcher === undefined && clock.monotonicMs() - changedMs < TIME_STEP_MS
      if (isUntold) isAll = true
      if (isAll || stamp !== listed || told.size > 0 || missing.size > 0) yield* relist(real, stamp)
      if (listFault !== undefined) throw listFault
      const due = isAll ? order : [...new Set([...rolling(), ...settling.waiting(), ...tenantsOf(told)])]
      told = new Set()
      isAll = false
      yield* takeChanged(real, due, isFirst)
    },
    close: () => watcher?.close(),
  }

  /** Nothing depends on what the system tells but how soon many files are looked at. */
  function follow(real: string): void {
    watcher?.close()
    watcher = undefined
    isAll = true
    try {
      const fresh = watch(real, { persistent: false }, (_event, name) => {
        // A hidden name may be the link that all others lead through.
        if (name === null || name.startsWith('.')) isAll = true
        else if (told.size < MAX_NAMES) told.add(name)
      })
      fresh.on('error', () => {
        fresh.close()
        if (watcher === fresh) watcher = undefined
      })
      watcher = fresh
    } catch {
      // Looked at in turn, then.
    }
  }

  function* relist(real: string, stamp: string): Waits<void> {
    listed = stamp
    listFault = undefined
    const before = files
    files = yield* list(real)
    order = [...files.keys()]
    for (const [tenant, own] of files) {
      const former = before.get(tenant)
      if (former?.length !== own.length) for (const name of own) told.add(name)
    }
    removeMissing()
  }

  function tenantsOf(changed: ReadonlySet<string>): readonly string[] {
    return [...changed].flatMap((name) => {
      const named = names.get(name)
      return named?.kind === 'tenant' ? [named.tenant] : []
    })
  }

  function* list(real: string): Waits<typeof files> {
    const found = new Map<string, string[]>()
    const read = new Map<string, NamedFile>()
    const folder = opendirSync(real, { bufferSize: 1_024 })
    try {
      for (let entry = folder.readSync(); entry !== null; entry = folder.readSync()) {
        yield
        const named = names.get(entry.name) ?? readFileName(entry.name)
        read.set(entry.name, named)
        if (read.size > MAX_NAMES) return tooMany(`holds more than ${MAX_NAMES} files`)
        if (named.kind === 'tenant') found.set(named.tenant, [...(found.get(named.tenant) ?? []), entry.name].sort())
        else if (named.kind === 'misnamed' && names.get(entry.name) !== named)
          layers.fail({ path: join(path, entry.name), message: `stands for no tenant: ${named.why}` })
      }
    } finally {
      folder.closeSync()
    }
    if (found.size > MAX_TENANTS) return tooMany(`holds the policies of more than ${MAX_TENANTS} tenants`)
    for (const [name, { kind }] of names) if (kind === 'misnamed' && !read.has(name)) layers.mend(join(path, name))
    names = read
    return found
  }

  /** The same until the folder is another one: it is not counted again each time. What was known stays, as when it is out of reach. */
  function tooMany(what: string): typeof files {
    listFault = unusable(path, what)
    return files
  }

  /** Gone at two looks: an editor may take a file away to write it anew. */
  function removeMissing(): void {
    for (const tenant of layers.tenants()) {
      if (files.has(tenant)) missing.delete(tenant)
      else if (missing.has(tenant)) {
        missing.delete(tenant)
        settling.forget(tenant)
        layers.remove(tenant)
      } else missing.add(tenant)
    }
  }

  function rolling(): readonly string[] {
    const some = order.slice(next, next + LOOKED_AT)
    next = next + LOOKED_AT >= order.length ? 0 : next + LOOKED_AT
    return some
  }

  function* takeChanged(real: string, tenants: readonly string[], isFirst: boolean): Waits<void> {
    let leftMs = BUSY_MS
    for (const tenant of tenants) {
      yield
      const names = files.get(tenant)
      if (names === undefined) continue
      const stamp = names.length === 1 ? fileStamp(join(real, names[0] ?? '')) : names.join(' ')
      if (!settling.isDue(tenant, stamp, isFirst)) continue
      if (!isFirst && leftMs <= 0) continue
      const startedMs = performance.now()
      yield* take(real, tenant, names, stamp, isFirst)
      leftMs -= performance.now() - startedMs
    }
  }

  function* take(real: string, tenant: string, names: readonly string[], stamp: string, isFirst: boolean): Waits<void> {
    const shown = join(path, names[0] ?? '')
    try {
      if (names.length > 1) throw unusable(shown, `is not the only one that stands for the tenant: ${names.join(', ')}`)
      const read = yield* readPolicyFile(join(real, names[0] ?? ''), { folder: real, isFirst })
      // Something else is there since: the next looks will see.
      if (read.stamp !== stamp) return
      yield* layers.put(tenant, shown, read.value)
    } catch (error) {
      if (!(error instanceof SallyportError)) throw error
      layers.fail({ path: shown, tenant, message: error.message })
    }
    settling.take(tenant, stamp)
  }
}
