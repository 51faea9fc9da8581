/** Which tokens are revoked. Pure: a set of rules and the question whether one of them concerns an identity. */
import { z } from 'zod'
import type { Identity } from '../tokens/identity.ts'

/** Milliseconds by which clocks may differ, as for opening: an `iat` may lie that far ahead. */
const LEEWAY_MS = 30_000

/** Longest that a token can matter after it was issued: its life of 24 h, and the leeway. */
const LONGEST_LIFE_MS = 86_400_000 + LEEWAY_MS

/** Rules kept at most; merged by what they name, so that repeating one costs nothing. */
export const MAX_RULES = 100_000

/** What to revoke: one token by its id, or every token of a sandbox or tenant. */
export type RevocationRule = { readonly tokenId: string } | RevocationOfMany

/** Every token of a sandbox or tenant that was issued before an instant. */
export type RevocationOfMany = ({ readonly sandbox: string } | { readonly tenant: string }) & {
  /**
   * Milliseconds since the epoch; tokens with an earlier `iat` are revoked. Default: 30 s from now, since an issuer's clock may be ahead by as
   * much. Until then new tokens are refused too; an instant of the past lets new ones through at once.
   */
  readonly issuedBeforeMs?: number | undefined
}

/** A rule as it is kept. */
export const revocationSchema = z.strictObject({
  kind: z.enum(['token', 'sandbox', 'tenant']),
  value: z.string().min(1).max(512),
  /** Tokens issued before this; `null` for one token, whenever issued. */
  issued_before: z.number().nullable(),
  revoked_at: z.number(),
})

/** A rule as it is kept. Times in milliseconds since the epoch. */
export type Revocation = z.infer<typeof revocationSchema>

/**
 * A rule made now.
 * @throws TypeError for an empty or endless name, or an instant that is none
 */
export function createRevocation(rule: RevocationRule, nowMs: number): Revocation {
  const made = describeRule(rule, nowMs)
  if (!revocationSchema.safeParse(made).success) throw new TypeError('a revocation needs a name and a finite instant')
  return made
}

function describeRule(rule: RevocationRule, nowMs: number): Revocation {
  if ('tokenId' in rule) return { kind: 'token', value: rule.tokenId, issued_before: null, revoked_at: nowMs }
  const issuedBefore = rule.issuedBeforeMs ?? nowMs + LEEWAY_MS + 1
  const [kind, value] = 'sandbox' in rule ? (['sandbox', rule.sandbox] as const) : (['tenant', rule.tenant] as const)
  return { kind, value, issued_before: issuedBefore, revoked_at: nowMs }
}

/** When the last token that a rule can concern is dead. */
export function lapsesAtMs(revocation: Revocation): number {
  return Math.max(revocation.revoked_at + LEEWAY_MS, revocation.issued_before ?? 0) + LONGEST_LIFE_MS
}

/** The rules in force. */
export class RevocationRules {
  readonly #rules: Readonly<Record<Revocation['kind'], Map<string, Revocation>>> = {
    token: new Map(),
    sandbox: new Map(),
    tenant: new Map(),
  }

  /** For identities that never expire; see {@link isRevoked}. The oldest goes first. */
  readonly #lapsed = new Map<string, Revocation>()

  /** Rules in force. */
  get size(): number {
    return this.#rules.token.size + this.#rules.sandbox.size + this.#rules.tenant.size
  }

  /** Adds a rule; the wider of two on the same thing stays. */
  add(revocation: Revocation): void {
    const rules = this.#rules[revocation.kind]
    const known = rules.get(revocation.value)
    if (known === undefined) rules.set(revocation.value, revocation)
    else rules.set(revocation.value, widest(known, revocation))
  }

  /** Whether a rule concerns the identity. One that never expires, as a bound listener's, is also held to rules that have lapsed for tokens. */
  isRevoked(identity: Identity): boolean {
    const { token, sandbox, tenant } = this.#rules
    if (token.size > 0 && token.has(identity.tokenId)) return true
    if (sandbox.size > 0 && concerns(sandbox, identity.sandbox, identity.issuedAtMs)) return true
    if (tenant.size > 0 && concerns(tenant, identity.tenant, identity.issuedAtMs)) return true
    return identity.expiresAtMs === Infinity && this.#lapsed.size > 0 && this.#isLapsedRuleFor(identity)
  }

  /** The rules in force, oldest first within a kind. */
  list(): Revocation[] {
    return Object.values(this.#rules).flatMap((rules) => [...rules.values()])
  }

  /** Drops the rules that no living token can fall under. */
  lapse(nowMs: number): void {
    for (const rules of Object.values(this.#rules)) {
      for (const [value, revocation] of rules) {
        if (lapsesAtMs(revocation) > nowMs) continue
        rules.delete(value)
        this.#lapsed.set(lapsedKey(revocation.kind, value), revocation)
      }
    }
    for (const oldest of this.#lapsed.keys()) {
      if (this.#lapsed.size <= MAX_RULES) break
      this.#lapsed.delete(oldest)
    }
  }

  #isLapsedRuleFor(identity: Identity): boolean {
    const applies = (kind: Revocation['kind'], value: string | undefined): boolean => {
      const rule = value === undefined ? undefined : this.#lapsed.get(lapsedKey(kind, value))
      return rule !== undefined && identity.issuedAtMs < (rule.issued_before ?? Infinity)
    }
    return (
      applies('token', identity.tokenId) || applies('sandbox', identity.sandbox) || applies('tenant', identity.tenant)
    )
  }
}

function concerns(rules: ReadonlyMap<string, Revocation>, value: string | undefined, issuedAtMs: number): boolean {
  const rule = value === undefined ? undefined : rules.get(value)
  return rule !== undefined && issuedAtMs < (rule.issued_before ?? Infinity)
}

function widest(one: Revocation, other: Revocation): Revocation {
  const unbounded = one.issued_before === null || other.issued_before === null
  return {
    ...one,
    issued_before: unbounded ? null : Math.max(one.issued_before ?? 0, other.issued_before ?? 0),
    revoked_at: Math.max(one.revoked_at, other.revoked_at),
  }
}

function lapsedKey(kind: Revocation['kind'], value: string): string {
  return `${kind} ${value}`
}
