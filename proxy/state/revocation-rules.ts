/** Which tokens are revoked. Pure: a set of rules and the question whether one of them concerns an identity. */
import { z } from 'zod'
import type { Identity } from '../tokens/identity.ts'

/** Milliseconds by which clocks may differ, as for opening: an `iat` may lie that far ahead. */
const LEEWAY_MS = 30_000

/** Longest that a token can matter after it was issued: its life of 24 h, and the leeway. */
const LONGEST_LIFE_MS = 86_400_000 + LEEWAY_MS

/** Rules kept at most; merged by what they name, so that repeating one costs nothing. */
export const MAX_RULES = 100_000

/** What to revoke: one token by its id, or every token of a sandbox, of a tenant, or of anybody. */
export type RevocationRule = { readonly tokenId: string } | RevocationOfMany

/** Every token of a sandbox, of a tenant, or of all, that was issued before an instant. */
export type RevocationOfMany = (
  { readonly sandbox: string } | { readonly tenant: string } | { readonly everyone: true }
) & {
  /**
   * Milliseconds since the epoch; tokens with an earlier `iat` are revoked. Default: 30 s from now, since an issuer's clock may be ahead by as
   * much. Until then new tokens are refused too; an instant of the past lets new ones through at once.
   */
  readonly issuedBeforeMs?: number | undefined
}

/** The one value of the kind `everyone`. */
const EVERYONE = '*'

/** A rule as it is kept. */
export const revocationSchema = z.strictObject({
  kind: z.enum(['token', 'sandbox', 'tenant', 'everyone']),
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
  const [kind, value] = whom(rule)
  return { kind, value, issued_before: issuedBefore, revoked_at: nowMs }
}

function whom(rule: RevocationOfMany): readonly [Exclude<Revocation['kind'], 'token'>, string] {
  if ('everyone' in rule) return ['everyone', EVERYONE]
  return 'sandbox' in rule ? ['sandbox', rule.sandbox] : ['tenant', rule.tenant]
}

/** When the last token that a rule can concern is dead. */
export function lapsesAtMs(revocation: Revocation): number {
  return Math.max(revocation.revoked_at + LEEWAY_MS, revocation.issued_before ?? 0) + LONGEST_LIFE_MS
}

type RuleMaps = Readonly<Record<Revocation['kind'], Map<string, Revocation>>>

/**
 * The rules in force. One that has lapsed stays in force while there is room: a clock may be ahead and come back, and an identity of a bound listener
 * never expires. It no longer counts against {@link MAX_RULES}.
 */
export class RevocationRules {
  readonly #rules: RuleMaps = emptyMaps()
  /** The oldest goes first. */
  readonly #lapsed: RuleMaps = emptyMaps()

  /** Rules in force that have not lapsed. */
  get size(): number {
    return sizeOf(this.#rules)
  }

  /** Adds a rule; the wider of two on the same thing stays. */
  add(revocation: Revocation): void {
    addTo(this.#rules, revocation)
  }

  /** Whether a rule concerns the identity. */
  isRevoked(identity: Identity): boolean {
    return concerns(this.#rules, identity) || concerns(this.#lapsed, identity)
  }

  /** The rules in force that have not lapsed, oldest first within a kind. */
  list(): Revocation[] {
    return allOf(this.#rules)
  }

  /** Sets apart the rules that no living token can fall under by this clock, and takes back those that it has been wrong about. */
  lapse(nowMs: number): void {
    for (const revocation of allOf(this.#lapsed)) {
      if (lapsesAtMs(revocation) > nowMs) move(revocation, this.#lapsed, this.#rules)
    }
    for (const revocation of allOf(this.#rules)) {
      if (lapsesAtMs(revocation) <= nowMs) move(revocation, this.#rules, this.#lapsed)
    }
    let tooMany = sizeOf(this.#lapsed) - MAX_RULES
    if (tooMany <= 0) return
    const oldestFirst = allOf(this.#lapsed).toSorted((one, other) => one.revoked_at - other.revoked_at)
    for (const { kind, value } of oldestFirst) {
      if (tooMany-- <= 0) break
      this.#lapsed[kind].delete(value)
    }
  }
}

function emptyMaps(): RuleMaps {
  return { token: new Map(), sandbox: new Map(), tenant: new Map(), everyone: new Map() }
}

function sizeOf({ token, sandbox, tenant, everyone }: RuleMaps): number {
  return token.size + sandbox.size + tenant.size + everyone.size
}

function allOf(rules: RuleMaps): Revocation[] {
  return Object.values(rules).flatMap((ofKind) => [...ofKind.values()])
}

function addTo(rules: RuleMaps, revocation: Revocation): void {
  const known = rules[revocation.kind].get(revocation.value)
  rules[revocation.kind].set(revocation.value, known === undefined ? revocation : widest(known, revocation))
}

function move(revocation: Revocation, from: RuleMaps, to: RuleMaps): void {
  from[revocation.kind].delete(revocation.value)
  addTo(to, revocation)
}

function concerns({ token, sandbox, tenant, everyone }: RuleMaps, identity: Identity): boolean {
  if (token.size > 0 && token.has(identity.tokenId)) return true
  if (sandbox.size > 0 && concernsIssued(sandbox, identity.sandbox, identity.issuedAtMs)) return true
  if (tenant.size > 0 && concernsIssued(tenant, identity.tenant, identity.issuedAtMs)) return true
  return everyone.size > 0 && concernsIssued(everyone, EVERYONE, identity.issuedAtMs)
}

function concernsIssued(
  rules: ReadonlyMap<string, Revocation>,
  value: string | undefined,
  issuedAtMs: number,
): boolean {
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
