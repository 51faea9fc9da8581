/** What is a policy? Read from data with every fault at once, and compiled into what decisions look up. */
import { z } from 'zod'
import { parseEntry, type Entry, type EntryContext, type EntrySets, type HostEntry } from './entry.ts'
import { SallyportError } from './error.ts'
import { HostTable } from './host-table.ts'
import { jsonSteps } from './json-steps.ts'
import { faulty, quoted, type Checked, type LocatedFault } from './parsed.ts'
import { findPreset } from './presets/index.ts'
import { shapeFaults } from './shape.ts'
import { SharedLists } from './shared-lists.ts'
import { finish, type Steps } from './steps.ts'

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

/** Entries in one list of a policy of the operator's, before sets are expanded. */
const MAX_ENTRIES = 100_000
/** The same in what a token or a sandbox brings along. */
const MAX_CLAIM_ENTRIES = 10_000

const shapes = {
  denyAll: z.strictObject({ kind: z.literal('deny-all') }),
  allowAll: z.strictObject({ kind: z.literal('allow-all') }),
  static: staticShape(MAX_ENTRIES),
  named: z.strictObject({ kind: z.literal('named'), name: z.string().min(1).max(100) }),
}
const mode = { mode: z.enum(['enforce', 'report']).optional() }

function staticShape(maxEntries: number) {
  const hostList = z.array(z.string()).max(maxEntries)
  return z.strictObject({ kind: z.literal('static'), allowedHosts: hostList, deniedHosts: hostList.optional() })
}

/** A policy as data, such as a token's `egress`; unknown members are refused. */
export const egressPolicySchema = z.discriminatedUnion('kind', [
  shapes.denyAll,
  shapes.allowAll,
  staticShape(MAX_CLAIM_ENTRIES),
  shapes.named,
])

/** One of the operator's, which may be long. */
const operatorPolicySchema = z.discriminatedUnion('kind', [
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

const hostPolicySchema = z.discriminatedUnion('kind', [
  shapes.denyAll,
  shapes.allowAll,
  shapes.static,
  shapes.named,
  z.strictObject({
    kind: z.literal('resolver'),
    resolve: z.custom((value) => typeof value === 'function', 'is a function that gives a list of entries'),
  }),
])

/**
 * Looks at the shape of a policy that a program gives, whose author may write no TypeScript; its entries are not read.
 * @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault
 */
export function checkPolicyShape(policy: unknown): asserts policy is EgressPolicy {
  const shape = hostPolicySchema.safeParse(policy)
  if (shape.success) return
  const faults = shapeFaults(shape.error, 'policy_shape', '`deny-all`, `allow-all`, `static`, `named` or `resolver`')
  const texts = faults.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`))
  throw new SallyportError('SALLYPORT_POLICY_INVALID', `the policy can not be used: ${texts.join('; ')}`)
}

/** Reads and compiles a policy from unknown data, with every fault and where it is. */
export function parsePolicy(input: unknown, context: EntryContext): Checked<CompiledPolicy> {
  return finish(parsePolicySteps(input, context))
}

/** {@link parsePolicy} in steps. */
export function* parsePolicySteps(input: unknown, context: EntryContext): Steps<Checked<CompiledPolicy>> {
  const shape = (context.from === 'token' ? egressPolicySchema : operatorPolicySchema).safeParse(input)
  if (!shape.success) return { ok: false, faults: yield* everyFault(shape.error, input, context) }
  yield
  return yield* compilePolicySteps(shape.data, context)
}

/** An operator's or tenant's layer, compiled. */
export interface CompiledLayer {
  readonly policy: CompiledPolicy
  readonly mode: 'enforce' | 'report'
}

/** Reads and compiles an operator's or tenant's layer, which may have a `mode`. */
export function parseLayerPolicy(input: unknown, context: EntryContext): Checked<CompiledLayer> {
  return finish(parseLayerPolicySteps(input, context))
}

/** {@link parseLayerPolicy} in steps. */
export function* parseLayerPolicySteps(input: unknown, context: EntryContext): Steps<Checked<CompiledLayer>> {
  const shape = layerPolicySchema.safeParse(input)
  if (!shape.success) return { ok: false, faults: yield* everyFault(shape.error, input, context) }
  const { mode = 'enforce', ...data } = shape.data
  yield
  const policy = yield* compilePolicySteps(data, context)
  return policy.ok ? { ok: true, value: { policy: policy.value, mode } } : policy
}

/** Where nothing is wrong with the shape but keys that do not exist, the entries are read all the same: whoever wrote a file is told everything at once. */
function* everyFault(error: z.ZodError, input: unknown, context: EntryContext): Steps<readonly LocatedFault[]> {
  const faults = shapeFaults(error, 'policy_shape', KINDS)
  if (context.from === 'token' || error.issues.some(({ code }) => code !== 'unrecognized_keys')) return faults
  const lists = z.object(shapes.static.shape).safeParse(input)
  if (!lists.success) return faults
  const entries = yield* compilePolicySteps(lists.data, context)
  return entries.ok ? faults : [...faults, ...entries.faults]
}

/** Compiles a policy; the faults of all entries come at once (of the first thousand), each with its path. */
export function compilePolicy(policy: EgressPolicyData, context: EntryContext): Checked<CompiledPolicy> {
  return finish(compilePolicySteps(policy, context))
}

/** {@link compilePolicy} in steps. */
export function* compilePolicySteps(policy: EgressPolicyData, context: EntryContext): Steps<Checked<CompiledPolicy>> {
  if (policy.kind !== 'static') return { ok: true, value: policy }
  const { allowedHosts, deniedHosts = [] } = policy
  const shared = sharedLists(context)
  const source = yield* sourceOf(allowedHosts, deniedHosts, context)
  const known = shared.find(source)
  if (known !== undefined) return { ok: true, value: known }
  yield
  const allowed = yield* parseEntries(allowedHosts, 'allowedHosts', context)
  const denied = yield* parseEntries(deniedHosts, 'deniedHosts', context)
  if (!allowed.ok || !denied.ok) {
    return { ok: false, faults: [allowed, denied].flatMap((list) => (list.ok ? [] : list.faults)) }
  }
  const compiled = yield* staticPolicy(allowed.value, denied.value)
  shared.keep(source, compiled)
  // What is kept of a policy of the operator's is its canonical form.
  if (context.from === 'file') {
    yield
    const canonical = yield* sourceOf(compiled.allowedHosts, compiled.deniedHosts, context)
    if (canonical !== source) shared.keep(canonical, compiled)
  }
  return { ok: true, value: compiled }
}

function* sourceOf(
  allowedHosts: readonly string[],
  deniedHosts: readonly string[],
  { from }: EntryContext,
): Steps<string> {
  return `${from} ${yield* jsonSteps(allowedHosts)} ${yield* jsonSteps(deniedHosts)}`
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
  const denied = finish(parseEntries(deniedHosts, 'deniedHosts', context))
  return denied.ok ? { ok: true, value: finish(staticPolicy('any', denied.value)) } : denied
}

/** Reads the operator's own sets. A set may name a shipped set, not another of its kind; a shipped name is taken. */
export function parseSets(sets: Readonly<Record<string, readonly string[]>>): Checked<EntrySets> {
  const faults: LocatedFault[] = []
  const read = new Map<string, readonly HostEntry[]>()
  for (const [name, texts] of Object.entries(sets)) {
    const nameFault = setNameFault(name)
    if (nameFault !== undefined) faults.push({ path: name, ...nameFault })
    const entries = finish(parseEntries(texts, name, { from: 'file' }))
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

/** Entries that are read in a step. */
const STEP_ENTRIES = 100

/** Faulty entries that are told of at once: to find the right form costs more than to read it. */
const MAX_FAULTS = 1_000

/** Repeated entries count once. */
function* parseEntries(
  texts: readonly string[],
  path: string,
  context: EntryContext,
): Steps<Checked<readonly Entry[]>> {
  const most = context.from === 'token' ? MAX_CLAIM_ENTRIES : MAX_ENTRIES
  if (texts.length > most) {
    return { ok: false, faults: [{ path, code: 'length', message: `a list holds at most ${most} entries` }] }
  }
  const faults: LocatedFault[] = []
  const entries = new Map<string, Entry>()
  for (const [index, text] of texts.entries()) {
    if (index % STEP_ENTRIES === STEP_ENTRIES - 1) yield
    if (faults.length === MAX_FAULTS) break
    const entry = parseEntry(text, context)
    if (entry.ok) entries.set(entry.value.text, entry.value)
    else faults.push({ path: `${path}[${index}]`, ...entry.fault })
  }
  return faults.length > 0 ? { ok: false, faults } : { ok: true, value: [...entries.values()] }
}

function* staticPolicy(allowed: readonly Entry[] | 'any', denied: readonly Entry[]): Steps<StaticPolicy> {
  const allowTable = allowed === 'any' ? allowed : yield* HostTable.inSteps(allowed, 'default')
  const denyTable = yield* HostTable.inSteps(denied, 'every')
  yield
  return Object.freeze({
    kind: 'static',
    allowed: allowTable,
    denied: denyTable,
    allowedHosts: Object.freeze(allowed === 'any' ? [] : allowed.map(({ text }) => text)),
    deniedHosts: Object.freeze(denied.map(({ text }) => text)),
  })
}

const KINDS = '`deny-all`, `allow-all`, `static` or `named`'
