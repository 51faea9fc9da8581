/** What the control API asks of open tunnels: of this process, or of all processes of a gateway together. Everything that goes in and out is plain data. */
import { z } from 'zod'
import { hostText, type Layers, stillAllowed } from '../../policies/index.ts'
import type { Clock } from '../clock.ts'
import type { Gate } from '../connection.ts'
import type { CheckedTenantLayer, TenantLayer } from '../policy/kept-tenants.ts'
import type { PolicySource } from '../policy/policy-source.ts'
import { inSlices, type Waits } from '../in-slices.ts'
import { createRevocation, type RevocationRule, RevocationRules } from '../state/revocation-rules.ts'
import type { Identity } from '../tokens/identity.ts'
import type { Tunnel, TunnelRegistry, Watched } from '../tunnels/registry.ts'
import { instant, instantOf } from './schemas.ts'

/** One tunnel, as operators see it. */
export const tunnelShown = z.object({
  requestId: z.string().describe('As in the audit log.'),
  tenant: z.string().optional(),
  sandbox: z.string().optional(),
  tokenId: z.string(),
  issuer: z.string(),
  host: z.string(),
  port: z.int(),
  addresses: z.array(z.string()).describe('What was judged; one of them is connected.'),
  expiresAt: instant.optional().describe('Absent: with its bound listener.'),
  bytesIn: z.int().nonnegative().describe('Origin to client.'),
  bytesOut: z.int().nonnegative(),
  idleSeconds: z.number().nonnegative(),
})

/** One of the list. */
export type TunnelShown = z.output<typeof tunnelShown>

/** A tunnel that a policy would cut. */
export const tunnelLost = z.object({
  requestId: z.string(),
  sandbox: z.string().optional(),
  host: z.string(),
  port: z.int(),
  reason: z.string(),
})

/** One of {@link OpenTunnels.lostUnder}. */
export type TunnelLost = z.output<typeof tunnelLost>

/** Whose tunnels are open, by what limits count. */
export const holderShown = z.object({
  key: z.string(),
  tenant: z.string().optional(),
  sandbox: z.string().optional(),
  issuer: z.string(),
  tokenIds: z.array(z.string()),
})

/** One of {@link OpenTunnels.holders}. */
export type Holder = z.output<typeof holderShown>

/** Which tunnels are meant; what is absent does not matter. */
export interface Selection {
  readonly requestId?: string | undefined
  readonly tenant?: string | undefined
  readonly sandbox?: string | undefined
  readonly tokenId?: string | undefined
  /** In canonical form. */
  readonly host?: string | undefined
}

/** A piece of a sorted list: what comes behind `after`, `limit` entries at most. */
export interface Piece {
  readonly after?: string | undefined
  readonly limit: number
}

/** The open tunnels. */
export interface OpenTunnels {
  readonly count: () => number
  /** In the order of their request ids. */
  readonly list: (selection: Selection, piece: Piece) => Promise<readonly TunnelShown[]>
  /** Ends them with `operator`; whose the first was. */
  readonly cut: (selection: Selection) => Promise<{ readonly count: number; readonly first?: Whose | undefined }>
  /** How many a revocation would end. */
  readonly countRevoked: (rule: RevocationRule) => Promise<number>
  /** Those of a tenant that hold now, and would not under another layer; `undefined`: without one that is kept. `shown` of them at most are named. */
  readonly lostUnder: (
    tenant: string,
    layer: TenantLayer | undefined,
    shown: number,
  ) => Promise<{ readonly count: number; readonly tunnels: readonly TunnelLost[] }>
  /** In the order of their keys; `limit` tokens of each at most. */
  readonly holders: (
    selection: Pick<Selection, 'tenant' | 'sandbox'>,
    piece: Piece,
    tokens: number,
  ) => Promise<readonly Holder[]>
}

/** Of a tunnel. */
export interface Whose {
  readonly tenant?: string | undefined
  readonly sandbox?: string | undefined
}

/** Those of this process; `others` are identities that count as holders without a tunnel. */
export function tunnelsHere({
  registry,
  clock,
  policies,
  gate,
  others = () => [],
}: {
  readonly registry: TunnelRegistry
  readonly clock: Clock
  readonly policies: PolicySource
  readonly gate: Pick<Gate, 'network'>
  readonly others?: () => readonly Identity[]
}): OpenTunnels {
  const select = (selection: Selection) => registry.list().filter(({ tunnel }) => isMeant(tunnel, selection))
  return {
    count: () => registry.size,
    list: (selection, piece) => {
      const found = pieceOf(select(selection), piece, ({ tunnel }) => tunnel.requestId)
      return Promise.resolve(found.map(({ tunnel }) => describe(tunnel, clock.monotonicMs())))
    },
    cut: async (selection) => {
      const found = select(selection)
      for (const watched of found) registry.cut(watched, 'operator')
      await registry.cutsDone()
      const [first] = found
      return { count: found.length, ...(first && { first: whose(first.tunnel.identity) }) }
    },
    countRevoked: (rule) => {
      const doomed = new RevocationRules()
      doomed.add(createRevocation(rule, clock.wallMs()))
      return Promise.resolve(registry.list().filter(({ tunnel }) => doomed.isRevoked(tunnel.identity)).length)
    },
    lostUnder: async (tenant, layer, shown) => {
      const next = await checkedAgain(policies, layer)
      const lost = await inSlices(lostSteps(select({ tenant }), next, { policies, gate }))
      return { count: lost.length, tunnels: lost.slice(0, shown) }
    },
    holders: (selection, piece, tokens) => {
      const all = [...registry.list().map(({ tunnel }) => tunnel.identity), ...others()].filter((identity) =>
        isWhose(identity, selection),
      )
      const groups = pieceOf([...Map.groupBy(all, holderKey)], piece, ([key]) => key)
      return Promise.resolve(groups.flatMap(([key, members]) => holder(key, members, tokens)))
    },
  }
}

/** The first entries behind a place in a list that is put in order. */
export function pieceOf<T>(all: readonly T[], { after, limit }: Piece, keyOf: (item: T) => string): readonly T[] {
  return all
    .filter((item) => after === undefined || keyOf(item) > after)
    .sort((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1))
    .slice(0, limit)
}

function isMeant({ requestId: id, identity, permit }: Tunnel, { requestId, tokenId, host, ...rest }: Selection) {
  return (
    isWhose(identity, rest) &&
    (requestId === undefined || id === requestId) &&
    (tokenId === undefined || identity.tokenId === tokenId) &&
    (host === undefined || hostText(permit.destination) === host)
  )
}

function isWhose(identity: Identity, { tenant, sandbox }: Whose): boolean {
  return (tenant === undefined || identity.tenant === tenant) && (sandbox === undefined || identity.sandbox === sandbox)
}

function whose({ tenant, sandbox }: Identity): Whose {
  return { ...(tenant !== undefined && { tenant }), ...(sandbox !== undefined && { sandbox }) }
}

function describe({ requestId, identity, permit, expiresAtMs, relay }: Tunnel, nowMs: number): TunnelShown {
  const { tokenId, issuer } = identity
  const expiresAt = instantOf(expiresAtMs)
  return {
    requestId,
    ...whose(identity),
    tokenId,
    issuer,
    host: hostText(permit.destination),
    port: permit.destination.port,
    addresses: permit.addresses.map(({ text }) => text),
    ...(expiresAt !== undefined && { expiresAt }),
    bytesIn: relay.bytesIn,
    bytesOut: relay.bytesOut,
    idleSeconds: Math.max(0, Math.round(nowMs - relay.lastActivityMs) / 1000),
  }
}

/** What limits count by: a token without a sandbox is one for itself. */
function holderKey({ issuer, tenant, sandbox, tokenId }: Identity): string {
  return JSON.stringify([tenant ?? null, sandbox ?? null, issuer, sandbox === undefined ? tokenId : null])
}

function holder(key: string, members: readonly Identity[], tokens: number): Holder[] {
  const [first] = members
  if (first === undefined) return []
  const tokenIds = [...new Set(members.map(({ tokenId }) => tokenId))].slice(0, tokens)
  return [{ key, ...whose(first), issuer: first.issuer, tokenIds }]
}

/** A layer that does not hold here refuses everything, as it would in force. */
async function checkedAgain(
  policies: PolicySource,
  layer: TenantLayer | undefined,
): Promise<CheckedTenantLayer | undefined> {
  if (layer === undefined) return undefined
  const checked = await policies.checkTenant(layer)
  if (checked.ok) return checked.value
  const denying = await policies.checkTenant({ kind: 'deny-all' })
  if (!denying.ok) throw new TypeError('a policy that denies all has faults')
  return denying.value
}

function* lostSteps(
  own: readonly Watched[],
  next: CheckedTenantLayer | undefined,
  { policies, gate }: { readonly policies: PolicySource; readonly gate: Pick<Gate, 'network'> },
): Waits<readonly TunnelLost[]> {
  const layers = new Map<Identity, Layers>()
  const asked: Promise<unknown>[] = []
  for (const { tunnel } of own) {
    const { identity } = tunnel
    if (layers.has(identity)) continue
    const found = policies.layersIf(identity, next)
    if (found instanceof Promise) asked.push(found.then((known) => layers.set(identity, known)))
    else layers.set(identity, found)
    yield undefined
  }
  yield Promise.all(asked).then(() => undefined)
  const lost: TunnelLost[] = []
  for (const { tunnel } of own) {
    const { requestId, identity, permit } = tunnel
    const { destination, addresses } = permit
    const verdict = stillAllowed(layers.get(identity) ?? NO_LAYERS, destination, addresses, gate.network())
    const { sandbox } = identity
    const whom = { requestId, ...(sandbox !== undefined && { sandbox }) }
    if (verdict) lost.push({ ...whom, host: hostText(destination), port: destination.port, reason: verdict.reason })
    yield undefined
  }
  return lost
}

/** Refuse everything. */
const NO_LAYERS: Layers = { layers: [], version: '' }
