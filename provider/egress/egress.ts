/**
 * The way out of sandboxes, as the provider sees it: for one on this machine a socket in its egress folder, behind which somebody decides; for one elsewhere
 * a gateway that it reaches over the network, and tokens for it.
 */
import type { EgressPolicy } from '../../policies/index.ts'

/** Whose way out it is. */
export interface EgressRequest {
  readonly sandbox: string
  readonly tenant: string | undefined
  readonly policy: EgressPolicy
  /** Where the socket is to be; what a dead process left there is replaced. */
  readonly socketPath: string
}

/** The way out of one sandbox. */
export interface EgressLink {
  /**
   * The next connection obeys; open ones that are no longer allowed are cut.
   * @throws SallyportError `SALLYPORT_POLICY_INVALID`, or what a resolver throws; then the old policy stays
   */
  readonly setPolicy: (policy: EgressPolicy) => Promise<void>
  /** Nothing gets out from this call on, and what is open is cut; idempotent. */
  readonly close: () => Promise<void>
}

/** What is done with a further token: one for the old, or one of another policy, under which nothing that is open may go on unseen. */
export type TakeToken = (token: string, why: 'renewal' | 'policy') => Promise<void>

/** The way out of one sandbox elsewhere. */
export interface EgressGrant extends EgressLink {
  /** Of the gateway, as the sandbox reaches it: `http:` or `https:`, without credentials. */
  readonly gateway: URL
  /** PEM of authorities for `https:`; the system's when undefined. */
  readonly ca: string | undefined
  /** One that lives for five minutes or more, and for ten at most. @throws what a resolver throws */
  readonly token: () => Promise<string>
  /** From now on `take` gets each token that takes the place of another; the present one at once. */
  readonly begin: (take: TakeToken) => Promise<void>
}

/** All ways out of one provider. */
export interface Egress {
  /** @throws what makes it impossible; a resolver that throws too */
  readonly open: (request: EgressRequest) => Promise<EgressLink>
  /** The same for a sandbox elsewhere. Absent where no sandbox elsewhere can get to. */
  readonly grant?: (request: Omit<EgressRequest, 'socketPath'>) => Promise<EgressGrant>
  /** Takes back what a sandbox of a process that is gone may still hold. */
  readonly revoke?: (sandbox: string) => Promise<void>
  /** Ends what was started for it; idempotent. */
  readonly close: () => Promise<void>
}
