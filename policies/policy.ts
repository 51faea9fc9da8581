/** What is a policy? Read from data with every fault at once, and compiled into what decisions look up. */
import { z } from 'zod'
import { parseEntry, type Entry, type EntryContext, type EntrySets, type HostEntry } from './entry.ts'
import { HostTable } from './host-table.ts'
import { faulty, quoted, type Checked, type LocatedFault } from './parsed.ts'
import { findPreset } from './presets/index.ts'
import { SharedLists } from './shared-lists.ts'

/** A policy as the host of sandboxes writes it. Whatever is not allowed is denied. */
export type EgressPolicy =
  /** The default everywhere. */
  | { readonly kind: 'deny-all' }
  /** Public addresses only, still audited. */
  | { readonly kind: 'allow-all' }
  /** An empty list denies all; a denied host wins over an allowed one. */
  | {
      readonly kind: 'static'
      readonly allowedHosts: readonly string[]
      readonly deniedHosts?: readonly string[] | undefined
    }
  /** Entries that the host's own code looks up; parameterless on purpose: the closure knows the tenant. */
  | { readonly kind: 'resolver'; readonly resolve: () => Promise<readonly string[]> }
  /** One of the gateway's own named policies. */
  | { readonly kind: 'named'; readonly name: string }

/** A policy that fits in a file or a token. */
export type EgressPolicyData = Exclude<EgressPolicy, { readonly kind: 'resolver' }>

/** What a layer says, ready to be asked. `unavailable`: could not be read or found, and denies. */
export type CompiledPolicy =
  | { readonly kind: 'deny-all' }
  | { readonly kind: 'allow-all' }
  | StaticPolicy
  | { readonly kind: 'named'; readonly name: string }
  | { readonly kind: 'unavailable' }

/** Two compiled lists; immutable. */
export interface StaticPolicy {
  readonly kind: 'static'
  /** `any` only for the operator's own list of denied hosts, which stands beside the ceiling and grants nothing more. */
  readonly allowed: HostTable | 'any'
  readonly denied: HostTable
  /** Canonical texts, in the order of the list. */
  readonly allowedHosts: readonly string[]
  readonly deniedHosts: readonly string[]
}

/** Entries in one list, before sets are expanded. */
const MAX_ENTRIES = 10_000

const hostList = z.array(z.string()).max(MAX_ENTRIES)
const shapes = {
  denyAll: z.strictObject({ kind: z.literal('deny-all') }),
  allowAll: z.strictObject({ kind: z.literal('allow-all') }),
  static: z.strictObject({ kind: z.literal('static'), allowedHosts: hostList, deniedHosts: hostList.optional() }),
  named: z.strictObject({ kind: z.literal('named'), name: z.string().min(1).max(100) }),
}
const mode = { mode: z.enum(['enforce', 'report']).optional() }

/** A policy as data, such as a token's `egress`; unknown members are refused. */
export const egressPolicySchema = z.discriminatedUnion('kind', [
  shapes.denyAll,
  shapes.allowAll,
  shapes.static,
  shapes.named,
])

/** The same with a `mode`, which only an operator's or a tenant's layer may have. */
export const layerPolicySchema = z.discriminatedUnion('kind', [
  shapes.denyAll.extend(mode),
  shapes.allowAll.extend(mode),
  shapes.static.extend(mode),
  shapes.named.extend(mode),
])

/** Reads and compiles a policy from unknown data, with every fault and where it is. */
export function parsePolicy(input: unknown, context: EntryContext): Checked<CompiledPolicy> {
  const shape = egressPolicySchema.safeParse(input)
  return shape.success ? compilePolicy(shape.data, context) : { ok: false, faults: shapeFaults(shape.error) }
}

/** Reads and compiles an operator's or tenant's layer, which may have a `mode`. */
export function parseLayerPolicy(
  input: unknown,
  context: EntryContext,
): Checked<{ readonly policy: CompiledPolicy; readonly mode: 'enforce' | 'report' }> {
  const shape = layerPolicySchema.safeParse(input)
  if (!shape.success) return { ok: false, faults: shapeFaults(shape.error) }
  const { mode = 'enforce', ...data } = shape.data
  const policy = compilePolicy(data, context)
  return policy.ok ? { ok: true, value: { policy: policy.value, mode } } : policy
}

/** Compiles a policy; the faults of all entries come at once, each with its path. */
export function compilePolicy(policy: EgressPolicyData, context: EntryContext): Checked<CompiledPolicy> {
  if (policy.kind !== 'static') return { ok: true, value: policy }
  const { allowedHosts, deniedHosts = [] } = policy
  const shared = sharedLists(context)
  const source = JSON.stringify([context.from, allowedHosts, deniedHosts])
  const known = shared.find(source)
  if (known !== undefined) return { ok: true, value: known }
  const allowed = parseEntries(allowedHosts, 'allowedHosts', context)
  const denied = parseEntries(deniedHosts, 'deniedHosts', context)
  if (!allowed.ok || !denied.ok) {
    return { ok: false, faults: [allowed, denied].flatMap((list) => (list.ok ? [] : list.faults)) }
  }
  const compiled = staticPolicy(allowed.value, denied.value)
  shared.keep(source, compiled)
  return { ok: true, value: compiled }
}

/** A list means what the sets that it may name make of it. */
const listsOfSets = new WeakMap<EntrySets, SharedLists>()
const NO_SETS: EntrySets = new Map()

function sharedLists({ sets = NO_SETS }: EntryContext): SharedLists {
  const known = listsOfSets.get(sets)
  if (known !== undefined) return known
  const fresh = new SharedLists()
  listsOfSets.set(sets, fresh)
  return fresh
}

/** Compiles the operator's own `deniedHosts`: a layer named `ceiling`, placed first, that allows all the rest. */
export function compileDeniedHosts(deniedHosts: readonly string[], context: EntryContext): Checked<StaticPolicy> {
  const denied = parseEntries(deniedHosts, 'deniedHosts', context)
  return denied.ok ? { ok: true, value: staticPolicy('any', denied.value) } : denied
}

/** Reads the operator's own sets. A set may name a shipped set, not another of its kind; a shipped name is taken. */
export function parseSets(sets: Readonly<Record<string, readonly string[]>>): Checked<EntrySets> {
  const faults: LocatedFault[] = []
  const read = new Map<string, readonly HostEntry[]>()
  for (const [name, texts] of Object.entries(sets)) {
    const nameFault = setNameFault(name)
    if (nameFault !== undefined) faults.push({ path: name, ...nameFault })
    const entries = parseEntries(texts, name, { from: 'file' })
    if (entries.ok)
      read.set(
        name,
        entries.value.flatMap((entry) => (entry.kind === 'preset' ? entry.entries : [entry])),
      )
    else faults.push(...entries.faults)
  }
  return faults.length > 0 ? { ok: false, faults } : { ok: true, value: read }
}

function setNameFault(name: string): { code: string; message: string } | undefined {
  const isTaken = findPreset(name) !== undefined
  if (isTaken) return faulty('preset', `${quoted(name)} is the name of a shipped set; choose another`).fault
  if (/^[a-z0-9][a-z0-9-]{0,62}$/.test(name)) return undefined
  return faulty('preset', `${quoted(name)} is no name for a set; use lower-case letters, digits and \`-\``).fault
}

/** Repeated entries count once. */
function parseEntries(texts: readonly string[], path: string, context: EntryContext): Checked<readonly Entry[]> {
  if (texts.length > MAX_ENTRIES) {
    return { ok: false, faults: [{ path, code: 'length', message: `a list holds at most ${MAX_ENTRIES} entries` }] }
  }
  const faults: LocatedFault[] = []
  const entries = new Map<string, Entry>()
  for (const [index, text] of texts.entries()) {
    const entry = parseEntry(text, context)
    if (entry.ok) entries.set(entry.value.text, entry.value)
    else faults.push({ path: `${path}[${index}]`, ...entry.fault })
  }
  return faults.length > 0 ? { ok: false, faults } : { ok: true, value: [...entries.values()] }
}

function staticPolicy(allowed: readonly Entry[] | 'any', denied: readonly Entry[]): StaticPolicy {
  return Object.freeze({
    kind: 'static',
    allowed: allowed === 'any' ? allowed : new HostTable(allowed, 'default'),
    denied: new HostTable(denied, 'every'),
    allowedHosts: Object.freeze(allowed === 'any' ? [] : allowed.map(({ text }) => text)),
    deniedHosts: Object.freeze(denied.map(({ text }) => text)),
  })
}

const KINDS = '`deny-all`, `allow-all`, `static` or `named`'

function shapeFaults({ issues }: z.ZodError): readonly LocatedFault[] {
  return issues.map((issue) => ({
    path: pathText(issue.path),
    code: 'policy_shape',
    message: 'discriminator' in issue ? `expected ${KINDS}` : lowerFirst(issue.message),
  }))
}

function pathText(path: readonly PropertyKey[]): string {
  return path
    .map((part, index) => (typeof part === 'number' ? `[${part}]` : `${index === 0 ? '' : '.'}${String(part)}`))
    .join('')
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1)
}
