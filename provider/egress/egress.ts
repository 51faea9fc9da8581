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

/** What a sandbox elsewhere shows the gateway: a token, or the handle of one where a token is too long to be shown. */
export type EgressCredential = 'token' | 'handle'

/** Whose way out it is, and what is shown. */
export interface GrantRequest extends Omit<EgressRequest, 'socketPath'> {
  readonly credential: EgressCredential
}

/** What is done with a further token (or handle): one for the old, or one of another policy, under which nothing that is open may go on unseen. */
export type TakeToken = (token: string, why: 'renewal' | 'policy') => Promise<void>

/** The way out of one sandbox elsewhere. */
export interface EgressGrant extends EgressLink {
  /** Of the gateway, as the sandbox reaches it: `http:` or `https:`, without credentials. */
  readonly gateway: URL
  /** PEM of authorities for `https:`; the system's when undefined. */
  readonly ca: string | undefined
  /** One that lives for five minutes or more, and for ten at most; or its handle, as was asked. @throws what a resolver throws */
  readonly token: () => Promise<string>
  /** From now on `take` gets each token that takes the place of another; the present one at once. */
  readonly begin: (take: TakeToken) => Promise<void>
  /**
   * With handles: why the gateway decided as it did when this sandbox asked for `host`, by its audit log; undefined while it knows of nothing. Who shows a
   * handle for the sandbox may not be told the answer inside.
   */
  readonly decisionOn?: (host: string) => Promise<string | undefined>
}

/** All ways out of one provider. */
export interface Egress {
  /** @throws what makes it impossible; a resolver that throws too */
  readonly open: (request: EgressRequest) => Promise<EgressLink>
  /** The same for a sandbox elsewhere. Absent where no sandbox elsewhere can get to. */
  readonly grant?: (request: GrantRequest) => Promise<EgressGrant>
  /** Whether it has what it takes to give these. Absent: tokens, as far as they are needed at all. */
  readonly gives?: (credential: EgressCredential) => boolean
  /** Takes back what a sandbox of a process that is gone may still hold. */
  readonly revoke?: (sandbox: string) => Promise<void>
  /** Ends what was started for it; idempotent. */
  readonly close: () => Promise<void>
}
