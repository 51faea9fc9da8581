/** Compiles the `policy` section: every policy that the operator wrote down, ready to be asked, or every fault. */
import { createHash } from 'node:crypto'
import {
  compileDeniedHosts,
  compilePolicy,
  compilePolicySteps,
  jsonSteps,
  parseSets,
  type Checked,
  type CompiledPolicy,
  type EgressPolicy,
  type EntryContext,
  type LocatedFault,
  type StaticPolicy,
  type Steps,
} from '../../policies/index.ts'
import { inSlices } from '../in-slices.ts'
import { createDynamicPolicy, type DynamicPolicy, type LoadedPolicy } from './dynamic-policy.ts'
import type { TenantFilesSettings } from './tenant-files/tenant-files.ts'
import type { TenantResolverSettings } from './tenant-resolver.ts'

/** Whether a layer refuses, or only writes down that it would have. */
export type PolicyMode = 'enforce' | 'report'

/** A policy of the operator's; `enforce` by default. */
export type PolicySetting = EgressPolicy & { readonly mode?: PolicyMode | undefined }

/** The `policy` section of the configuration; a program may also use resolver policies in it. */
export interface PolicySection {
  /** `deny-all` by default. */
  readonly ceiling?: PolicySetting | undefined
  /** Denied whatever any layer says, also a reporting one. */
  readonly deniedHosts?: readonly string[] | undefined
  readonly tenants?: Readonly<Record<string, PolicySetting>> | undefined
  /** Not named ones in their turn. */
  readonly named?: Readonly<Record<string, EgressPolicy>> | undefined
  /** The operator's own `@sets`. */
  readonly sets?: Readonly<Record<string, readonly string[]>> | undefined
  /** Asked for tenants that `tenants` doesn't list. */
  readonly tenantResolver?:
    (TenantResolverSettings & Freshness & { readonly mode?: PolicyMode | undefined }) | undefined
  /** Files with the policies of tenants that `tenants` doesn't list; instead of a resolver. */
  readonly tenantFiles?: TenantFilesSettings | undefined
}

/** How long what a resolver answered is used. */
export interface Freshness {
  /** Fresh; 60 by default. */
  readonly ttlSeconds?: number | undefined
  /** Kept on error after that; 300 by default. */
  readonly staleSeconds?: number | undefined
}

/** A policy that may change by itself. */
export type PolicyCell = Pick<DynamicPolicy, 'current' | 'version' | 'close'>

/** One layer of the operator's. */
export interface ModalCell {
  readonly cell: PolicyCell
  readonly mode: PolicyMode
}

/** All of the section. */
export interface OperatorPolicies {
  readonly ceiling: ModalCell
  readonly denied: StaticPolicy | undefined
  readonly tenants: ReadonlyMap<string, ModalCell>
  readonly named: ReadonlyMap<string, PolicyCell>
  /** For entries that come later, such as a tenant resolver's. */
  readonly context: EntryContext
  /** Of what was written down; 12 hexadecimal digits. */
  readonly version: string
}

/** What compiling needs beside the section. */
export interface CompileOptions {
  /** The hosts of `@npm` and `@apt`. */
  readonly machineSets: Readonly<Record<string, readonly string[]>>
  readonly freshness: Freshness
  readonly onChange: () => void
  /** `policy` says which, in words. */
  readonly onFault: (policy: string, error: unknown) => void
}

/** Reads the section; nothing is asked for yet. */
export function compileOperatorPolicies(section: PolicySection, options: CompileOptions): Checked<OperatorPolicies> {
  const faults: LocatedFault[] = []
  const sets = take(parseSets({ ...section.sets, ...options.machineSets }), 'sets', '.')
  const context: EntryContext = { from: 'file', sets: sets ?? new Map() }
  const denied = section.deniedHosts?.length ? take(compileDeniedHosts(section.deniedHosts, context), '') : undefined
  const named = new Map<string, PolicyCell>()
  for (const [name, policy] of Object.entries(section.named ?? {})) {
    const path = `named.${name}`
    if (policy.kind === 'named')
      faults.push({ path, code: 'policy_shape', message: 'a named policy does not stand for another' })
    else named.set(name, cellOf(policy, path))
  }
  const ceiling = modal(section.ceiling ?? { kind: 'deny-all' }, 'ceiling')
  const tenants = new Map<string, ModalCell>()
  for (const [tenant, setting] of Object.entries(section.tenants ?? {}))
    tenants.set(tenant, modal(setting, `tenants.${tenant}`))
  // A set that is faulty makes every entry that names it faulty too; the first cause is enough.
  if (sets === undefined) return { ok: false, faults: faults.filter((fault) => fault.path.startsWith('sets')) }
  if (faults.length > 0) return { ok: false, faults }
  return {
    ok: true,
    value: { ceiling, denied, tenants, named, context, version: versionOf([section, options.machineSets]) },
  }

  function modal(setting: PolicySetting, path: string): ModalCell {
    const { mode = 'enforce', ...policy } = setting
    return { mode, cell: cellOf(policy, path) }
  }

  function cellOf(policy: EgressPolicy, path: string): PolicyCell {
    if (policy.kind === 'resolver') {
      return dynamicCell(path, options, async () => loadedList(await policy.resolve(), context))
    }
    return fixedCell(take(compilePolicy(policy, context), path) ?? { kind: 'unavailable' })
  }

  function take<T>(checked: Checked<T>, path: string, joint = path === '' ? '' : '.'): T | undefined {
    if (checked.ok) return checked.value
    faults.push(
      ...checked.faults.map((fault) => ({ ...fault, path: `${path}${fault.path === '' ? '' : joint}${fault.path}` })),
    )
    return undefined
  }
}

/** A policy that is asked for. */
export function dynamicCell(
  policy: string,
  options: Pick<CompileOptions, 'freshness' | 'onChange' | 'onFault'>,
  load: (signal: AbortSignal) => Promise<LoadedPolicy>,
): DynamicPolicy {
  return createDynamicPolicy({
    load,
    ttlMs: (options.freshness.ttlSeconds ?? 60) * 1_000,
    staleMs: (options.freshness.staleSeconds ?? 300) * 1_000,
    onChange: options.onChange,
    onFault: (error) => options.onFault(policy, error),
  })
}

/** A short hash of data; functions in it don't count. */
export function versionOf(data: unknown): string {
  return shortHash(JSON.stringify(data))
}

/** The same in steps. */
export function* versionSteps(data: unknown): Steps<string> {
  return shortHash(yield* jsonSteps(data))
}

function shortHash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12)
}

/** A policy that is known. */
function fixedCell(policy: CompiledPolicy): PolicyCell {
  return { current: () => policy, version: () => '', close: () => undefined }
}

/** The list of a resolver policy. Rejects for what is no list of entries: out of reach, then, rather than half a policy. */
async function loadedList(list: unknown, context: EntryContext): Promise<LoadedPolicy> {
  if (!Array.isArray(list) || !list.every((entry) => typeof entry === 'string'))
    throw new TypeError('a resolver gives a list of entries')
  const compiled = await inSlices(compilePolicySteps({ kind: 'static', allowedHosts: list }, context))
  if (!compiled.ok) throw new TypeError(compiled.faults[0]?.message)
  return { policy: compiled.value, version: await inSlices(versionSteps(list)) }
}
