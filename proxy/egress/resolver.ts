/** Turns a name that policy allowed into addresses: fixed hosts first, then DNS, as a full name; never `/etc/hosts`, never a search domain. */
import type { HostName, IpAddress } from '../../policies/index.ts'
import type { Clock } from '../clock.ts'

/** What a name resolved to; `addresses` is never empty. */
export type Resolution =
  | { readonly ok: true; readonly addresses: readonly IpAddress[]; readonly ms: number }
  | { readonly ok: false; readonly reason: 'dns_failed' | 'dns_timeout'; readonly ms: number }

/** Where names are resolved. */
export interface Resolver {
  /**
   * A value when it is known already (fixed host or cache), else a promise; `await` does for both.
   * @throws (rejects) the signal's reason when it aborts; the query itself goes on for other callers
   */
  resolve(host: HostName, signal?: AbortSignal): Resolution | Promise<Resolution>
  /** Cancels what is in flight and answers `dns_failed` from then on; idempotent. */
  close(): void
}

/** Settings of {@link createResolver}. */
export interface ResolverOptions {
  /** `address`, `address:port` or `[address]:port`; the system's when absent. */
  readonly servers?: readonly string[]
  /** Fixed answers, asked before DNS. Judged like any other address. */
  readonly hosts?: ReadonlyMap<string, readonly IpAddress[]>
  /** For one name in all, with every retry and server; 5,000 by default. */
  readonly timeoutMs?: number
  readonly clock?: Clock
}

/** @throws TypeError for a server that is no address with an optional port */
export function createResolver(_options: ResolverOptions): Resolver {
  throw new Error('not built yet')
}
