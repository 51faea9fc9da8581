/** Which layers apply to an identity: the operator's ceiling, the tenant's policy, the token's claim. Decides nothing itself. */
import type { EgressPolicy, Layers } from '../../policies/index.ts'
import type { Clock } from '../clock.ts'
import type { Identity } from '../tokens/identity.ts'

/** A policy of the operator's, with how it is applied. */
export type PolicySetting = EgressPolicy & {
  /** `report` lets through what this layer would refuse, and records it; `enforce` by default. */
  readonly mode?: 'enforce' | 'report'
}

/** The `policy` section of the configuration. */
export interface PolicySection {
  /** `deny-all` by default. */
  readonly ceiling?: PolicySetting
  /** Denied whatever any layer says. */
  readonly deniedHosts?: readonly string[]
  readonly tenants?: Readonly<Record<string, PolicySetting>>
  readonly named?: Readonly<Record<string, EgressPolicy>>
  /** The operator's own `@sets`. */
  readonly sets?: Readonly<Record<string, readonly string[]>>
  /** Asked for tenants that `tenants` doesn't list. */
  readonly tenantResolver?: TenantResolver
  /** How long an answer of a resolver policy is fresh; 60 by default. */
  readonly ttlSeconds?: number
  /** How long it is kept on error after that; 300 by default. */
  readonly staleSeconds?: number
}

/** Asks somebody else for a tenant's policy: its data, or `undefined` for a tenant that nobody knows. */
export type TenantResolver = (tenant: string, signal: AbortSignal) => Promise<unknown>

/** Settings of {@link createPolicySource}. */
export interface PolicySourceOptions {
  readonly policy: PolicySection
  /** The hosts of `@npm` and `@apt`; see `machine-sets.ts`. */
  readonly machineSets?: Readonly<Record<string, readonly string[]>>
  readonly clock?: Clock
}

/** Where the gateway gets its layers. */
export interface PolicySource {
  /** A value when everything is known already, else a promise (a resolver policy that was never asked). Never rejects. */
  layersFor(identity: Identity): Layers | Promise<Layers>
  /**
   * Takes a new configuration; live tunnels hear of it.
   * @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault; the old one then stays
   */
  replace(policy: PolicySection, machineSets?: Readonly<Record<string, readonly string[]>>): void
  /** Calls back after any change that may concern a live tunnel; returns what ends it. */
  onChange(listener: () => void): () => void
  /** Of the operator's configuration, a short hash. */
  readonly version: string
  /** Ends background refreshes; idempotent. */
  close(): void
}

/** @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault */
export function createPolicySource(_options: PolicySourceOptions): PolicySource {
  throw new Error('not built yet')
}
