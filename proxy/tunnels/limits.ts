/**
 * How much one sandbox, one tenant and the whole gateway may do at a time: tunnels, new ones per second, bytes per second and per day.
 * Counts live in memory: a restart begins at zero. Where several processes serve one gateway, each tells the others what it counted (`usage.ts`).
 */
import type { Clock } from '../clock.ts'
import type { Identity } from '../tokens/identity.ts'
import { ByteRate } from './byte-rate.ts'
import type { UntoldUsage, UsageChange } from './usage.ts'

/** Limits of one sandbox or one tenant; every one is finite or absent. */
export interface IdentityLimits {
  /** Open at the same time. */
  readonly tunnels?: number | undefined
  /** New per second; a burst of one second's worth is let through at once. */
  readonly newPerSecond?: number | undefined
  /** Both directions together, per UTC day. */
  readonly bytesPerDay?: number | undefined
  /** Both directions of all connections together; beyond it they are read more slowly. */
  readonly bytesPerSecond?: number | undefined
}

/** All limits of a gateway. */
export interface GatewayLimits {
  /** Open at the same time in the whole gateway. */
  readonly tunnels: number
  readonly perSandbox: IdentityLimits
  readonly perTenant: IdentityLimits
}

/** The reasons that limits give. */
export type LimitReason = 'tunnel_limit' | 'rate_limit' | 'byte_quota' | 'gateway_busy'

/** A place under the limits, to be given back once; or why there is none. */
export type Admission =
  | { readonly ok: true; readonly place: Place }
  | { readonly ok: false; readonly reason: LimitReason; readonly retryAfterSeconds: number }

/** One admitted connection's claim on the counters of its sandbox and tenant. */
export interface Place {
  /** Counts bytes; returns whether the day's quota of the sandbox or the tenant is used up. */
  readonly addBytes: (bytes: number) => boolean
  /**
   * Told of bytes as they pass: in milliseconds, how long whoever sent them is to be left unread, so that the sandbox and the tenant keep to their bytes per
   * second. Absent where there is no such limit.
   */
  readonly pace?: ((bytes: number) => number) | undefined
  /** Idempotent. */
  readonly release: () => void
}

/** Usage of one identity, for operators. */
export interface Usage {
  readonly tunnels: number
  readonly bytesToday: number
}

interface Counter {
  readonly key: string
  readonly isTenant: boolean
  /** Here. */
  tunnels: number
  /** In other processes of the same gateway. */
  tunnelsElsewhere: number
  /** Token bucket for `newPerSecond`. */
  allowance: number
  refilledAtMs: number
  bytes: number
  day: number
  readonly rate: ByteRate
}

/** Counters kept at most; the idle ones that were used least recently go first. Each costs about 200 bytes. */
const MAX_COUNTERS = 50_000
const DAY_MS = 86_400_000

/** Counts against limits that may be replaced while it works. */
export class LimitCounters {
  #limits: GatewayLimits
  readonly #clock: Clock
  readonly #counters = new Map<string, Counter>()
  #tunnels = 0
  #tunnelsElsewhere = 0
  #untold: UntoldUsage | undefined

  /** `limits` may be replaced later; what is counted stays counted. */
  constructor(limits: GatewayLimits, clock: Clock) {
    this.#limits = limits
    this.#clock = clock
  }

  /** From now on what is counted here is also kept to be told to other processes. */
  share(untold: UntoldUsage): void {
    this.#untold = untold
  }

  /** Counts what other processes tell. */
  addElsewhere(changes: readonly UsageChange[]): void {
    for (const { key, isTenant, tunnels, opened, bytes, paced } of changes) {
      const counter = this.#counter(key, isTenant)
      const before = counter.tunnelsElsewhere
      counter.tunnelsElsewhere = Math.max(0, before + tunnels)
      if (!isTenant) this.#tunnelsElsewhere += counter.tunnelsElsewhere - before
      const limits = this.#limitsOf(counter)
      if (opened > 0 && limits.newPerSecond !== undefined) {
        this.#refill(counter, limits.newPerSecond)
        counter.allowance -= opened
      }
      if (bytes > 0) this.#addBytes(counter, bytes)
      if (paced > 0 && limits.bytesPerSecond !== undefined) counter.rate.take(paced, limits.bytesPerSecond)
      const own = this.#untold?.of(key)
      if (own && this.#untold && this.#isNear(counter, own, this.#untold)) this.#untold.hurry(key)
    }
    this.#hurryNearFull()
  }

  #noteAll(what: 'opened' | 'released', untold: UntoldUsage, sandbox: Counter, tenant: Counter | undefined): void {
    if (this.#isNear(sandbox, untold[what](sandbox), untold)) untold.hurry(sandbox.key)
    if (tenant && this.#isNear(tenant, untold[what](tenant), untold)) untold.hurry(tenant.key)
    this.#hurryNearFull()
  }

  /**
   * Whether a change can't wait to be told: if every process had as much untold, half of what is left under a limit could be used up without anybody knowing.
   */
  #isNear(counter: Counter, { tunnels, opened, bytes }: UsageChange, { processes }: UntoldUsage): boolean {
    const limits = this.#limitsOf(counter)
    const isLarge = (untold: number, left: number): boolean => Math.abs(untold) * 2 * processes >= left
    return (
      (limits.tunnels !== undefined &&
        tunnels !== 0 &&
        isLarge(tunnels, limits.tunnels - counter.tunnels - counter.tunnelsElsewhere)) ||
      (limits.newPerSecond !== undefined && opened > 0 && isLarge(opened, counter.allowance)) ||
      (limits.bytesPerDay !== undefined && bytes > 0 && isLarge(bytes, limits.bytesPerDay - counter.bytes))
    )
  }

  /** The same for the limit of the whole gateway. */
  #hurryNearFull(): void {
    const untold = this.#untold
    if (untold === undefined || untold.tunnels === 0) return
    const left = this.#limits.tunnels - this.#tunnels - this.#tunnelsElsewhere
    if (Math.abs(untold.tunnels) * 2 * untold.processes >= left) untold.hurryAll()
  }

  /** All that counts now, here and elsewhere, as a process that begins has to be told it. */
  *usage(): Generator<UsageChange> {
    const today = this.#today()
    for (const counter of this.#counters.values()) {
      const { key, isTenant, day } = counter
      const { newPerSecond } = this.#limitsOf(counter)
      if (newPerSecond !== undefined) this.#refill(counter, newPerSecond)
      const opened = newPerSecond === undefined ? 0 : Math.max(0, newPerSecond - counter.allowance)
      const tunnels = counter.tunnels + counter.tunnelsElsewhere
      const bytes = day === today ? counter.bytes : 0
      if (tunnels + opened + bytes > 0) yield { key, isTenant, tunnels, opened, bytes, paced: 0 }
    }
  }

  /** Takes effect for the next connection. */
  replaceLimits(limits: GatewayLimits): void {
    this.#limits = limits
  }

  /** Connections that hold a place in this process now. */
  get tunnels(): number {
    return this.#tunnels
  }

  /** A place for one more connection of `identity`, or the limit that stands in the way. */
  admit(identity: Identity): Admission {
    const { tunnels, perSandbox, perTenant } = this.#limits
    if (this.#tunnels + this.#tunnelsElsewhere >= tunnels)
      return { ok: false, reason: 'gateway_busy', retryAfterSeconds: 1 }
    const keys = keysOf(identity)
    const sandbox = this.#counter(keys.sandbox, false)
    const tenant = identity.tenant === undefined ? undefined : this.#counter(keys.tenant, true)
    const refused = this.#refusal(sandbox, perSandbox) ?? (tenant && this.#refusal(tenant, perTenant))
    if (refused) return refused
    count(sandbox)
    if (tenant) count(tenant)
    this.#tunnels++
    if (this.#untold) this.#noteAll('opened', this.#untold, sandbox, tenant)
    return { ok: true, place: this.#place(sandbox, tenant) }
  }

  /** What the sandbox of `identity` uses now. */
  usageOf(identity: Counted): Usage {
    return this.#usage(keysOf(identity).sandbox)
  }

  /** What the tenant of `identity` uses now. */
  usageOfTenant(identity: Counted): Usage {
    return this.#usage(keysOf(identity).tenant)
  }

  #usage(key: string): Usage {
    const counter = this.#counters.get(key)
    if (counter === undefined) return { tunnels: 0, bytesToday: 0 }
    const bytesToday = counter.day === this.#today() ? counter.bytes : 0
    return { tunnels: counter.tunnels + counter.tunnelsElsewhere, bytesToday }
  }

  #refusal(counter: Counter, limits: IdentityLimits): Extract<Admission, { ok: false }> | undefined {
    const { tunnels, newPerSecond } = limits
    if (tunnels !== undefined && counter.tunnels + counter.tunnelsElsewhere >= tunnels)
      return { ok: false, reason: 'tunnel_limit', retryAfterSeconds: 1 }
    if (this.#overQuota(counter, limits))
      return { ok: false, reason: 'byte_quota', retryAfterSeconds: this.#secondsToMidnight() }
    if (newPerSecond === undefined) return undefined
    this.#refill(counter, newPerSecond)
    return counter.allowance < 1 ? { ok: false, reason: 'rate_limit', retryAfterSeconds: 1 } : undefined
  }

  #refill(counter: Counter, newPerSecond: number): void {
    const nowMs = this.#clock.monotonicMs()
    counter.allowance = Math.min(
      newPerSecond,
      counter.allowance + ((nowMs - counter.refilledAtMs) / 1000) * newPerSecond,
    )
    counter.refilledAtMs = nowMs
  }

  #overQuota(counter: Counter, { bytesPerDay }: IdentityLimits): boolean {
    if (bytesPerDay === undefined) return false
    this.#addBytes(counter, 0)
    return counter.bytes >= bytesPerDay
  }

  /** To those of today. */
  #addBytes(counter: Counter, bytes: number): void {
    const today = this.#today()
    if (counter.day !== today) {
      counter.day = today
      counter.bytes = 0
    }
    counter.bytes += bytes
  }

  #limitsOf({ isTenant }: Counter): IdentityLimits {
    return isTenant ? this.#limits.perTenant : this.#limits.perSandbox
  }

  #place(sandbox: Counter, tenant: Counter | undefined): Place {
    let held = true
    return {
      addBytes: (bytes) => {
        const over = this.#count(sandbox, bytes, this.#limits.perSandbox)
        return (tenant !== undefined && this.#count(tenant, bytes, this.#limits.perTenant)) || over
      },
      pace: this.#isPaced ? (bytes) => this.#paceOf(sandbox, tenant, bytes) : undefined,
      release: () => {
        if (!held) return
        held = false
        this.#tunnels--
        sandbox.tunnels--
        if (tenant) tenant.tunnels--
        if (this.#untold) this.#noteAll('released', this.#untold, sandbox, tenant)
      },
    }
  }

  get #isPaced(): boolean {
    const { perSandbox, perTenant } = this.#limits
    return perSandbox.bytesPerSecond !== undefined || perTenant.bytesPerSecond !== undefined
  }

  #paceOf(sandbox: Counter, tenant: Counter | undefined, bytes: number): number {
    const { perSandbox, perTenant } = this.#limits
    if (this.#untold && bytes > 0) {
      if (perSandbox.bytesPerSecond !== undefined) this.#untold.paced(sandbox, bytes)
      if (tenant && perTenant.bytesPerSecond !== undefined) this.#untold.paced(tenant, bytes)
    }
    return Math.max(paced(sandbox, bytes, perSandbox), tenant === undefined ? 0 : paced(tenant, bytes, perTenant))
  }

  #count(counter: Counter, bytes: number, limits: IdentityLimits): boolean {
    const over = this.#overQuota(counter, limits)
    this.#addBytes(counter, bytes)
    if (this.#untold && bytes > 0 && this.#isNear(counter, this.#untold.carried(counter, bytes), this.#untold))
      this.#untold.hurry(counter.key)
    return over || this.#overQuota(counter, limits)
  }

  #counter(key: string, isTenant: boolean): Counter {
    const known = this.#counters.get(key)
    if (known) {
      // Who was used last matters once some must go.
      if (this.#counters.size > MAX_COUNTERS / 2) {
        this.#counters.delete(key)
        this.#counters.set(key, known)
      }
      return known
    }
    if (this.#counters.size >= MAX_COUNTERS) this.#evict()
    const fresh: Counter = {
      key,
      isTenant,
      tunnels: 0,
      tunnelsElsewhere: 0,
      allowance: Infinity,
      refilledAtMs: this.#clock.monotonicMs(),
      bytes: 0,
      day: this.#today(),
      rate: new ByteRate(this.#clock),
    }
    this.#counters.set(key, fresh)
    return fresh
  }

  /** Forgets the least recently used counter that nobody holds; looks at a bounded number of them. */
  #evict(): void {
    let looked = 0
    for (const [key, counter] of this.#counters) {
      if (counter.tunnels + counter.tunnelsElsewhere === 0) {
        this.#counters.delete(key)
        return
      }
      if (++looked === 1000) return
    }
  }

  #today(): number {
    return Math.floor(this.#clock.wallMs() / DAY_MS)
  }

  #secondsToMidnight(): number {
    return Math.ceil((DAY_MS - (this.#clock.wallMs() % DAY_MS)) / 1000)
  }
}

function count(counter: Counter): void {
  counter.tunnels++
  counter.allowance--
}

function paced({ rate }: Counter, bytes: number, { bytesPerSecond }: IdentityLimits): number {
  return bytesPerSecond === undefined ? 0 : rate.take(bytes, bytesPerSecond)
}

/** What an identity is counted by. */
type Counted = Pick<Identity, 'issuer' | 'tenant' | 'sandbox' | 'tokenId'>

interface Keys {
  readonly sandbox: string
  readonly tenant: string
}

/** An identity connects again and again; its keys are put together once. */
const keysOfIdentity = new WeakMap<Counted, Keys>()

/** Issuer and tenant are part of the sandbox's key: two hosts that name a sandbox alike do not share its limits. A token without a sandbox counts for itself. */
function keysOf(identity: Counted): Keys {
  const known = keysOfIdentity.get(identity)
  if (known) return known
  const { issuer, tenant = null, sandbox, tokenId } = identity
  const self = sandbox === undefined ? ['token', tokenId] : ['sandbox', sandbox]
  const keys = { sandbox: JSON.stringify([issuer, tenant, ...self]), tenant: JSON.stringify(['tenant', tenant]) }
  keysOfIdentity.set(identity, keys)
  return keys
}
