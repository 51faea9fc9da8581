/** Bound listeners that callers of the control API made. Each has a lease: one whose caller is gone is removed, and what is open through it cut. */
import { randomBytes } from 'node:crypto'
import type { EgressPolicy } from '../../policies/index.ts'
import type { AuditLog } from '../audit/record.ts'
import type { Clock } from '../clock.ts'
import type { BindAddress, BoundListener } from '../gateway.ts'
import type { BoundIdentity } from '../bound-identity.ts'
import { BOUND_ISSUER, type Identity } from '../tokens/identity.ts'

/** One listener. */
export interface Lease {
  readonly id: string
  readonly bound: BoundListener
  readonly sandbox: string
  readonly tenant: string | undefined
  readonly author: string
  /** Monotonic clock. */
  readonly lapsesAtMs: number
}

/** All of them. */
export interface Leases {
  readonly list: () => readonly Lease[]
  readonly get: (id: string) => Lease | undefined
  /** Whom they stand for. */
  readonly identities: () => readonly Identity[]
  /** Those that are open, and those that are being opened. */
  readonly count: () => number
  /** @throws SallyportError of the listener or the policy */
  readonly add: (request: LeaseRequest) => Promise<Lease>
  /** Another end of the lease; `undefined` when there is none of that id. */
  readonly renew: (id: string, ttlMs: number) => Lease | undefined
  /** Stops listening, cuts what is open and kills the identity for good; `undefined` when there is none of that id. */
  readonly remove: (id: string) => Promise<Lease | undefined>
  /** Stops the timer; listeners are closed with the gateway. Idempotent. */
  readonly close: () => void
}

/** What a caller asks for. */
export interface LeaseRequest {
  readonly where: BindAddress
  readonly sandbox: string
  readonly tenant: string | undefined
  readonly egress: EgressPolicy
  readonly ttlMs: number
  readonly author: string
}

/** How often leases are looked at. */
const SWEEP_MS = 250

/** Makes an empty table. */
export function createLeases(options: {
  readonly bind: (where: BindAddress & { readonly identity: BoundIdentity }) => Promise<BoundListener>
  readonly clock: Clock
  readonly audit: AuditLog
  /** Told of a listener that could not be closed. */
  readonly onFault: (error: unknown) => void
}): Leases {
  const { bind, clock, audit, onFault } = options
  const leases = new Map<string, Lease>()
  let opening = 0

  async function add({ where, sandbox, tenant, egress, ttlMs, author }: LeaseRequest): Promise<Lease> {
    opening++
    try {
      const bound = await bind({ ...where, identity: { sandbox, tenant, egress } })
      const id = `lst_${randomBytes(16).toString('hex')}`
      const lease: Lease = { id, bound, sandbox, tenant, author, lapsesAtMs: clock.monotonicMs() + ttlMs }
      leases.set(id, lease)
      return lease
    } finally {
      opening--
    }
  }

  async function remove(id: string): Promise<Lease | undefined> {
    const lease = leases.get(id)
    leases.delete(id)
    await lease?.bound.close()
    return lease
  }

  function sweep(): void {
    const now = clock.monotonicMs()
    for (const { id, lapsesAtMs, sandbox, tenant, bound, author } of leases.values()) {
      if (now < lapsesAtMs) continue
      void audit.write({ kind: 'admin', action: 'listener_lapsed', author, sandbox, tenant, token_id: bound.tokenId })
      remove(id).catch(onFault)
    }
  }

  const timer = setInterval(sweep, SWEEP_MS).unref()
  return {
    list: () => [...leases.values()],
    get: (id) => leases.get(id),
    identities: () => [...leases.values()].map(identityBehind),
    count: () => leases.size + opening,
    add,
    renew: (id, ttlMs) => {
      const lease = leases.get(id)
      if (lease === undefined) return undefined
      const renewed = { ...lease, lapsesAtMs: clock.monotonicMs() + ttlMs }
      leases.set(id, renewed)
      return renewed
    },
    remove,
    close: () => clearInterval(timer),
  }
}

/** As far as operators see it. */
function identityBehind({ bound, sandbox, tenant }: Lease): Identity {
  return {
    tokenId: bound.tokenId,
    issuer: BOUND_ISSUER,
    keyId: undefined,
    sandbox,
    tenant,
    issuedAtMs: 0,
    expiresAtMs: Infinity,
    claim: { kind: 'deny-all' },
    binding: undefined,
  }
}
