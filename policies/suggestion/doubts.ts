/** Which destinations should not be opened because they were seen: where data goes to strangers, where a name leads on to anywhere, where no name is left. */
import type { Destination } from '../destination.ts'
import { parseEntry, type HostEntry } from '../entry.ts'
import { HostTable, isRule } from '../host-table.ts'
import type { HostName } from '../host.ts'
import { PRESETS } from '../presets/index.ts'
import { hostingSuffix, registrableDomain } from '../public-suffix.ts'
import { blockOf } from '../special-purpose-blocks.ts'
import { DOUBTFUL_NAMES, type DoubtKind } from './doubtful-names.ts'

/** Reasons that nobody can ask to be passed over. */
export type RefusalKind = 'denied' | 'claim' | 'few-sandboxes'

/** A reason not to open a destination. */
export interface Doubt {
  readonly kind: DoubtKind | RefusalKind
  /** For whoever decides, in words. */
  readonly why: string
}

/** Every kind, as an option may name it. */
export const DOUBT_KINDS: readonly DoubtKind[] = [
  ...(Object.keys(DOUBTFUL_NAMES) as (keyof typeof DOUBTFUL_NAMES)[]),
  'unresolved',
]

const WHY: Readonly<Record<DoubtKind, string>> = {
  paste: 'takes what anybody posts and shows it to strangers',
  hosting: 'belongs to a service where anybody may have a name or an account of their own',
  tunnel: 'leads to a machine that anybody may have chosen',
  relay: 'fetches or carries messages for whoever asks: it reaches what it reaches',
  dns: 'answers DNS over HTTPS: queries carry data out, and no policy sees the names',
  metadata: 'is where clouds hand out credentials of the machine',
  address:
    'is an address, or a name that holds one: it says nothing of who answers, and there is no server name to compare',
  unresolved: 'never resolved: a typing error, or data in a name',
}

const KIND_OF: ReadonlyMap<string, DoubtKind> = new Map(
  Object.entries(DOUBTFUL_NAMES).flatMap(([kind, names]) => names.map((name) => [name, kind as DoubtKind] as const)),
)

/** A doubt by its kind. */
export function doubt(kind: DoubtKind): Doubt {
  return { kind, why: WHY[kind] }
}

/** What speaks against a destination; empty for an ordinary one. */
export function doubtsOf(destination: Destination): readonly Doubt[] {
  if (destination.kind === 'address') {
    return blockOf(destination.address) === 'metadata' ? [doubt('metadata'), doubt('address')] : [doubt('address')]
  }
  const { host } = destination
  const kind = listedKind(host) ?? (/^(?:doh|dns-query)\d*\./.test(host) ? 'dns' : undefined)
  // What a shipped set names was looked at, also where its neighbours are anybody's.
  if (kind !== undefined) return kind === 'hosting' && isVetted(host) ? [] : [doubt(kind)]
  const suffix = hostingSuffix(host)
  if (suffix === undefined || isVetted(host)) return []
  return [{ kind: 'hosting', why: `below \`${suffix}\` anybody may have a name` }]
}

/** Whether `*.below` would open something that is doubtful whether or not it was seen. */
export function isDoubtfulBelow(below: HostName): boolean {
  if (listedKind(below) !== undefined || hostingSuffix(below) !== undefined) return true
  if (registrableDomain(below) === undefined) return true
  for (const name of KIND_OF.keys()) if (name.endsWith(`.${below}`)) return true
  return false
}

function listedKind(host: HostName): DoubtKind | undefined {
  for (let name: string = host; ; name = name.slice(name.indexOf('.') + 1)) {
    const kind = KIND_OF.get(name)
    if (kind !== undefined || !name.includes('.')) return kind
  }
}

let vetted: HostTable | undefined

function isVetted(host: HostName): boolean {
  vetted ??= new HostTable(
    PRESETS.flatMap(({ entries }) => entries.flatMap(readEntry)),
    'default',
  )
  return isRule(vetted.findName(host, 443))
}

function readEntry(text: string): readonly HostEntry[] {
  const entry = parseEntry(text, { from: 'file' })
  return entry.ok && entry.value.kind !== 'preset' ? [entry.value] : []
}
