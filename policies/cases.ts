/** Do policies do what their authors expect? Runs a document of cases; the product's own cases have the same format. */
import { z } from 'zod'
import { parseAddress, type IpAddress } from './address.ts'
import {
  caseSchema,
  decisionSchema,
  documentSchema,
  type layersSchema,
  loadedSchema,
  matchSchema,
  refusedSchema,
} from './case-format.ts'
import { decideAddresses, decideUnresolved, type Allow, type Deny, type Layers } from './decide.ts'
import { destinationOf, type Destination } from './destination.ts'
import { parseEntry, type EntryContext, type EntrySets } from './entry.ts'
import { judgeLayer, type Layer } from './layer.ts'
import type { Checked, LocatedFault } from './parsed.ts'
import { compileDeniedHosts, compilePolicy, parseLayerPolicy, parsePolicy } from './policy.ts'
import { shapeFaults } from './shape.ts'
import { parseNetworkRules, type NetworkRules } from './special-purpose.ts'

/** What stands where a document says nothing. */
export interface CaseDefaults {
  readonly sets?: EntrySets
  /** For cases that bring no layers, such as those of a configuration file. */
  readonly layers?: Layers
  /** For documents that bring no `allowPrivate` and no `nat64Prefixes`. */
  readonly network?: NetworkRules
}

/** How one case went. */
export interface CaseResult {
  readonly name: string
  readonly ok: boolean
  /** What was expected and what came, when they differ. */
  readonly detail?: string
}

/**
 * Runs a document `{ about?, layers?, allowPrivate?, nat64Prefixes?, cases: […] }`. A case says how an entry loads
 * (`entry` with `kind`, `canonical`, `ports`, or `refused`, `hint`), what entries match (`entry` or `entries`, `target`,
 * `match`), or what is decided (`target`, `expect`, with `layers` and `addresses` where they differ from the document's).
 * What is no case is a failed one; so is a document without any.
 */
export function runPolicyCases(document: unknown, defaults: CaseDefaults = {}): readonly CaseResult[] {
  const read = documentSchema.safeParse(document)
  if (!read.success) return [failed('the document', shapeText(read.error))]
  if (read.data.cases.length === 0) return [failed('the document', 'it holds no cases')]
  return read.data.cases.map((item, index) => {
    const known = caseSchema.safeParse(item)
    if (!known.success) return failed(nameOf(item) ?? `case ${index + 1}`, whyNoCase(item))
    const { name } = known.data
    const detail =
      'expect' in known.data
        ? runDecision(known.data, read.data, defaults)
        : 'match' in known.data
          ? runMatch(known.data, defaults)
          : runEntry(known.data, defaults)
    return detail === undefined ? { name, ok: true } : failed(name, detail)
  })
}

/** One line: where it has the wrong shape, and how. */
function shapeText(error: z.ZodError): string {
  return faultsText(shapeFaults(error, 'case_shape'))
}

/** By the member that tells the forms apart. */
function whyNoCase(item: unknown): string {
  const member = z.looseObject({}).safeParse(item).data ?? {}
  const form =
    'expect' in member
      ? decisionSchema
      : 'match' in member
        ? matchSchema
        : 'refused' in member
          ? refusedSchema
          : 'canonical' in member
            ? loadedSchema
            : undefined
  const error = form?.safeParse(item).error
  return error === undefined ? 'a case has a `name`, a `target` and what to `expect`' : shapeText(error)
}

function runEntry(
  item: z.infer<typeof loadedSchema> | z.infer<typeof refusedSchema>,
  { sets }: CaseDefaults,
): string | undefined {
  const entry = parseEntry(item.entry, contextOf(item.where, sets))
  if ('refused' in item) {
    if (entry.ok) return `expected it to be refused, but it loads as \`${entry.value.text}\``
    const { code, hint } = entry.fault
    return differences({ refused: item.refused, hint: item.hint }, { refused: code, hint })
  }
  if (!entry.ok) return entry.fault.message
  const loaded = entry.value.kind === 'preset' ? null : entry.value.ports.map(({ low, high }) => [low, high])
  return differences(
    { kind: item.kind, canonical: item.canonical, ports: item.ports },
    { kind: entry.value.kind, canonical: entry.value.text, ports: loaded },
  )
}

function runMatch(item: z.infer<typeof matchSchema>, { sets }: CaseDefaults): string | undefined {
  const allowedHosts = item.entries ?? (item.entry === undefined ? [] : [item.entry])
  const policy = compilePolicy({ kind: 'static', allowedHosts }, contextOf(item.where, sets))
  const destination = readTarget(item.target)
  if (!policy.ok) return faultsText(policy.faults)
  if (destination === undefined) return NO_TARGET
  return differences({ match: item.match }, { match: judgeLayer(policy.value, destination, []).allows })
}

/** Without `addresses` a name is judged by itself. */
function runDecision(
  item: z.infer<typeof decisionSchema>,
  document: z.infer<typeof documentSchema>,
  { sets, ...defaults }: CaseDefaults,
): string | undefined {
  const allowPrivate = item.allowPrivate ?? document.allowPrivate
  const nat64Prefixes = item.nat64Prefixes ?? document.nat64Prefixes
  const hasSettings = allowPrivate !== undefined || nat64Prefixes !== undefined
  const network = hasSettings ? parseNetworkRules({ allowPrivate, nat64Prefixes }) : undefined
  const set = item.layers ?? document.layers
  const layers = set === undefined ? undefined : readLayers(set, sets)
  if (network?.ok === false) return faultsText(network.faults)
  if (layers?.ok === false) return faultsText(layers.faults)
  const destination = readTarget(item.target)
  const addresses = item.addresses?.map((text) => parseAddress(text))
  if (destination === undefined) return NO_TARGET
  if (addresses?.some(({ ok }) => !ok) === true) return 'one of the addresses is none'

  const rules = network?.value ?? defaults.network ?? { allowPrivate: [], nat64Prefixes: [], own: [] }
  const allLayers = layers?.value ?? defaults.layers ?? { layers: [], version: '' }
  const resolved = addresses?.flatMap((address) => (address.ok ? [address.value] : []))
  return differences(item.expect, factsOf(decide(allLayers, destination, resolved, rules)))
}

function decide(
  layers: Layers,
  destination: Destination,
  addresses: readonly IpAddress[] | undefined,
  network: NetworkRules,
): Allow | Deny {
  if (addresses === undefined) return decideUnresolved(layers, destination, network)
  return decideAddresses(layers, destination, addresses, network)
}

/** What a case may expect; of a reporting layer, what it would have refused. */
function factsOf(verdict: Allow | Deny): Record<string, unknown> {
  const { decision, effective } = verdict
  const { reason, layer, rule } =
    verdict.effective === 'deny' ? verdict : { reason: undefined, layer: undefined, ...verdict, ...verdict.report }
  return { decision, effective, reason, layer, rule }
}

/** A ceiling or a claim that nobody set is deny-all; a tenant that nobody set is no layer. */
function readLayers(set: z.infer<typeof layersSchema>, sets: EntrySets | undefined): Checked<Layers> {
  const faults: LocatedFault[] = []
  const layers: Layer[] = []
  const denied = compileDeniedHosts(set.deniedHosts ?? [], contextOf('file', sets))
  if (denied.ok) layers.push({ name: 'ceiling', mode: 'enforce', policy: denied.value })
  else faults.push(...denied.faults)
  for (const name of ['ceiling', 'tenant', 'claim'] as const) {
    if (name === 'tenant' && set.tenant === undefined) continue
    const policy = set[name] === undefined ? { kind: 'deny-all' } : set[name]
    const layer = name === 'claim' ? readClaim(policy, sets) : parseLayerPolicy(policy, contextOf('file', sets))
    if (layer.ok) layers.push({ name, ...layer.value })
    else faults.push(...layer.faults.map((fault) => ({ ...fault, path: `${name}.${fault.path}` })))
  }
  return faults.length > 0 ? { ok: false, faults } : { ok: true, value: { layers, version: '' } }
}

/** A token can't ask for a mode. */
function readClaim(policy: unknown, sets: EntrySets | undefined): ReturnType<typeof parseLayerPolicy> {
  const claim = parsePolicy(policy, contextOf('token', sets))
  return claim.ok ? { ok: true, value: { policy: claim.value, mode: 'enforce' } } : claim
}

function contextOf(from: 'file' | 'token' | undefined, sets: EntrySets | undefined): EntryContext {
  return sets === undefined ? { from: from ?? 'file' } : { from: from ?? 'file', sets }
}

const NO_TARGET = 'the target is no host and port in canonical form'

function readTarget({ host, port }: { readonly host: string; readonly port: number }): Destination | undefined {
  const destination = destinationOf(host.includes(':') ? `[${host}]` : host, port)
  return destination.ok ? destination.value : undefined
}

/** Compares the expected members that are there; a list holds answers that are equally right. */
function differences(expected: Record<string, unknown>, actual: Record<string, unknown>): string | undefined {
  const wrong = Object.entries(expected).filter(([field, value]) => {
    if (value === undefined) return false
    const answers: readonly unknown[] = Array.isArray(value) && field !== 'ports' ? value : [value]
    return !answers.some((answer) => JSON.stringify(answer) === JSON.stringify(actual[field]))
  })
  if (wrong.length === 0) return undefined
  return wrong.map(([field, value]) => `expected ${field} ${shown(value)}, got ${shown(actual[field])}`).join('; ')
}

function shown(value: unknown): string {
  return value === undefined ? 'none' : JSON.stringify(value)
}

function faultsText(faults: readonly LocatedFault[]): string {
  return faults.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ')
}

function failed(name: string, detail: string): CaseResult {
  return { name, ok: false, detail }
}

function nameOf(item: unknown): string | undefined {
  const named = z.looseObject({ name: z.string() }).safeParse(item)
  return named.success ? named.data.name : undefined
}
