/** The way out of sandboxes, as the provider sees it: a socket for each, in its egress folder, behind which somebody decides. */
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

/** All ways out of one provider. */
export interface Egress {
  /** @throws what makes it impossible; a resolver that throws too */
  readonly open: (request: EgressRequest) => Promise<EgressLink>
  /** Ends what was started for it; idempotent. */
  readonly close: () => Promise<void>
}
