/** The layer of each tenant by the configuration: what `tenants` says of it, else what its file or the resolver does. Nobody's is a tenant that none of them knows. */
import { type CompiledPolicy, SallyportError } from '../../policies/index.ts'
import type { Clock } from '../clock.ts'
import type { LoadedPolicy } from './dynamic-policy.ts'
import { entriesOf, EntryBudget, mostEntries } from './entry-budget.ts'
import { checkTenantLayer, type TenantSource } from './kept-tenants.ts'
import { dynamicCell, type ModalCell, type OperatorPolicies, type PolicySection } from './operator-policies.ts'
import { loadedTenant } from './policy-now.ts'
import type { FileChange } from './tenant-files/file-layers.ts'
import { openTenantFiles, type TenantFiles, type TenantFilesStatus } from './tenant-files/tenant-files.ts'
import { httpTenantResolver, type TenantMemory, type TenantResolver } from './tenant-resolver.ts'

/** What the layers are opened with. */
export interface TenantLayersOptions {
  readonly clock: Clock
  /** Instead of HTTP to the `url` of the section. */
  readonly resolver: TenantResolver | undefined
  /** Entries of all that a resolver said together; by default what there is memory for. */
  readonly mostEntries?: number | undefined
  readonly onChange: () => void
  readonly onFault: (policy: string, error: unknown) => void
  readonly onFileChange: ((change: FileChange) => void) | undefined
  /** Those of the configuration before: the last good policy of a file that is bad now. */
  readonly before: TenantLayers | undefined
}

/** The layers. */
export interface TenantLayers {
  /** Of a tenant that nobody knows, one that denies all. */
  readonly get: (tenant: string) => ModalCell
  /** Who is asked about a tenant; `undefined` where nobody knows it. A resolver may still not. */
  readonly sourceOf: (tenant: string) => Exclude<TenantSource, 'api'> | undefined
  /** Tenants of the section and of files. */
  readonly known: () => readonly string[]
  readonly files: () => TenantFilesStatus | undefined
  /** The last good layer of a tenant's file, as data. */
  readonly fileLayer: TenantFiles['layer']
  /** Gives the files to the layers that come after these, if they mean the same to them: then these do not close them. */
  readonly handOver: (means: string) => TenantFiles | undefined
  /** Ends refreshing and watching; idempotent. */
  readonly close: () => void
}

/** Tenants that a tenant resolver was asked about and that are kept fresh. */
const MAX_RESOLVED_TENANTS = 4_096
interface Resolved {
  readonly layer: ModalCell
  readonly close: () => void
  usedMs: number
}

/** The longest life of a token: no tunnel outlives the last connection of its tenant by more. */
const TENANT_KEPT_MS = 86_400_000

const DENY_ALL: CompiledPolicy = { kind: 'deny-all' }
/** A tenant that nobody configured. */
const UNKNOWN_TENANT: ModalCell = {
  mode: 'enforce',
  cell: { current: () => DENY_ALL, version: () => '', close: () => undefined },
}

/**
 * Opens files, and asks a resolver for nobody yet.
 * @throws SallyportError `SALLYPORT_POLICY_INVALID` when the files can't be used
 */
export function openTenantLayers(
  section: PolicySection,
  operator: OperatorPolicies,
  options: TenantLayersOptions,
): TenantLayers {
  // None of the functions below may name `options`: those of before, and theirs, would live as long as they do.
  const { clock, onChange, onFault, onFileChange, before } = options
  let lastGood = before?.fileLayer
  const written = operator.tenants
  const settings = section.tenantResolver
  const ask = options.resolver ?? (settings && httpTenantResolver(settings))
  const resolved = new Map<string, Resolved>()
  const budget = new EntryBudget(options.mostEntries ?? mostEntries())
  // A reload that changes nothing for the files reads none of them again: there may be thousands.
  const means = JSON.stringify([section.tenantFiles, textsOf(operator.context), [...operator.named.keys()]])
  let isHandedOver = false
  const files =
    section.tenantFiles &&
    (before?.handOver(means) ??
      openTenantFiles(section.tenantFiles, {
        clock,
        check: (policy) => checkTenantLayer(policy, operator),
        lastGood: (tenant) => lastGood?.(tenant),
        onFault: ({ path, tenant, message }) =>
          onFault(
            tenant === undefined ? path : `tenant ${tenant}`,
            new SallyportError(
              'SALLYPORT_POLICY_INVALID',
              message.includes(path) ? message : `\`${path}\`: ${message}`,
            ),
          ),
        onChange: (changes) => {
          onChange()
          for (const change of changes) onFileChange?.(change)
        },
      }))
  // Asked while the files were read for the first time; the same holds for it.
  lastGood = undefined

  return {
    get: (tenant) => {
      const layer = written.get(tenant) ?? files?.get(tenant)
      if (layer !== undefined) return layer
      return files === undefined && ask !== undefined ? resolve(tenant, ask) : UNKNOWN_TENANT
    },
    sourceOf: (tenant) => {
      if (written.has(tenant)) return 'configuration'
      if (files !== undefined) return files.get(tenant) && 'file'
      return ask && 'resolver'
    },
    known: () => [...written.keys(), ...(files?.tenants() ?? [])],
    files: () => files?.status(),
    fileLayer: (tenant) => files?.layer(tenant),
    handOver: (wanted) => {
      if (wanted !== means || files?.isReachable() !== true) return undefined
      isHandedOver = true
      return files
    },
    close: () => {
      if (!isHandedOver) files?.close()
      for (const one of resolved.values()) one.close()
    },
  }

  function resolve(tenant: string, resolver: TenantResolver): ModalCell {
    const nowMs = clock.monotonicMs()
    const known = resolved.get(tenant) ?? begin(tenant, resolver)
    known.usedMs = nowMs
    // Last used, last in order: the first is the one to let go.
    resolved.delete(tenant)
    resolved.set(tenant, known)
    for (const [oldest, unused] of resolved) {
      if (resolved.size <= MAX_RESOLVED_TENANTS && nowMs - unused.usedMs < TENANT_KEPT_MS) break
      unused.close()
      resolved.delete(oldest)
    }
    return known.layer
  }

  function begin(tenant: string, resolver: TenantResolver): Resolved {
    const memory: TenantMemory = {}
    let last: { readonly data: unknown; readonly loaded: LoadedPolicy } | undefined
    let letGo = (): void => undefined
    let isClosed = false
    let noRoom: { readonly error: unknown; readonly untilMs: number } | undefined
    const load = async (signal: AbortSignal) => {
      if (noRoom !== undefined && clock.monotonicMs() < noRoom.untilMs) throw noRoom.error
      const data = await resolver(tenant, signal, memory)
      if (data !== undefined && data === last?.data) return last.loaded
      const giveBack = makeRoom(entriesOf(data) - entriesOf(last?.loaded.policy))
      try {
        const loaded = await loadedTenant(data, operator)
        letGo()
        if (!isClosed) letGo = budget.hold(loaded.policy)
        last = { data, loaded }
        return loaded
      } finally {
        giveBack()
      }
    }
    /** What there is no room for is not kept for an answer that says it has not changed either, and is not asked for again at once. */
    const makeRoom = (more: number): (() => void) => {
      noRoom = undefined
      try {
        return budget.reserve(Math.max(0, more))
      } catch (error) {
        memory.etag = memory.data = undefined
        noRoom = { error, untilMs: clock.monotonicMs() + (settings?.ttlSeconds ?? 60) * 1_000 }
        throw error
      }
    }
    const cell = dynamicCell(`tenant ${tenant}`, { onChange, onFault, freshness: settings ?? {} }, load)
    const close = (): void => {
      isClosed = true
      letGo()
      cell.close()
    }
    return { layer: { mode: settings?.mode ?? 'enforce', cell }, close, usedMs: 0 }
  }
}

/** What entries of files are read with. */
function textsOf({ sets }: OperatorPolicies['context']): readonly unknown[] {
  return [...(sets ?? [])].map(([name, entries]) => [name, entries.map(({ text }) => text)])
}
