/** Turns a name that policy allowed into addresses: fixed hosts first, then DNS, as a full name; never `/etc/hosts`, never a search domain. */
import { parseAddress, type HostName, type IpAddress } from '../../policies/index.ts'
import type { CacheCounts } from '../cache-counts.ts'
import { systemClock, type Clock } from '../clock.ts'
import { askServers, parseServer, systemServers, type Answers } from './dns-servers.ts'
import { reasonOf } from './staggered.ts'

/** What a name resolved to; `addresses` is never empty, A before AAAA, each once. */
export type Resolved =
  | { readonly ok: true; readonly addresses: readonly IpAddress[]; readonly ms: number }
  | { readonly ok: false; readonly reason: 'dns_failed' | 'dns_timeout'; readonly ms: number }

/** Where names are resolved. */
export interface Resolver {
  /**
   * A value when it is known already (fixed host or cache), else a promise; `await` does for both.
   * @throws (rejects) the signal's reason when it aborts; the query itself goes on for other callers
   */
  resolve(host: HostName, signal?: AbortSignal): Resolved | Promise<Resolved>
  /** Cancels what is in flight and answers `dns_failed` from then on; idempotent. */
  close(): void
}

/** Settings of {@link createResolver}. */
export interface ResolverOptions {
  /** `address`, `address:port` or `[address]:port`; the system's when absent. */
  readonly servers?: readonly string[] | undefined
  /** Fixed answers, asked before DNS. Judged like any other address. See `parseFixedHosts`. */
  readonly hosts?: ReadonlyMap<string, readonly IpAddress[]> | undefined
  /** For one name in all, with every retry and server; 5,000 by default. */
  readonly timeoutMs?: number | undefined
  readonly clock?: Clock | undefined
  /** Counts names that were known, and those for which servers were asked. */
  readonly cacheCounts?: CacheCounts | undefined
}

/** An answer is kept for its TTL, and no longer than this: a name that moves is followed within a minute. */
const MAX_KEPT_MS = 60_000
/** A failure, and an answer of which one family is missing, is kept this long: enough to take the edge off a loop of retries. */
const FAILURE_KEPT_MS = 5_000
/** Names kept; failures have a small place of their own, so that invented names push out no real one. */
const MAX_KEPT = 4_096
const MAX_FAILURES_KEPT = 512
/** Look-ups under way; beyond it a name is refused as if the servers were slow, which they are then. */
const MAX_IN_FLIGHT = 2_048
/** An answer too long to be judged whole is no answer. Real names have a few, the largest pools some dozens. */
const MAX_ADDRESSES = 64
/** How often the system's servers are read again, at most, while they fail: a machine may have changed its network. */
const SYSTEM_SERVERS_REREAD_MS = 10_000

interface Kept {
  readonly resolved: Resolved
  readonly untilMs: number
}

/** @throws TypeError for a server that is no address with an optional port */
export function createResolver(options: ResolverOptions = {}): Resolver {
  const { hosts, timeoutMs = 5_000, clock = systemClock, cacheCounts = { hits: 0, misses: 0 } } = options
  const configured = options.servers?.map(parseServer)
  const closing = new AbortController()
  const found = new Map<string, Kept>()
  const failures = new Map<string, Kept>()
  const flights = new Map<string, Promise<Resolved>>()
  let servers = configured ?? systemServers()
  let serversReadMs = clock.monotonicMs()

  return {
    resolve: (host, signal) => {
      if (signal?.aborted === true) return Promise.reject(reasonOf(signal))
      const fixed = hosts?.get(host)
      if (fixed !== undefined && fixed.length > 0) return { ok: true, addresses: fixed, ms: 0 }
      if (closing.signal.aborted) return { ok: false, reason: 'dns_failed', ms: 0 }
      const kept = fromCache(found, host) ?? fromCache(failures, host)
      cacheCounts[kept === undefined ? 'misses' : 'hits']++
      if (kept !== undefined) return { ...kept, ms: 0 }
      const flight = flights.get(host) ?? startFlight(host)
      return signal === undefined ? flight : untilAborted(flight, signal)
    },
    close: () => {
      closing.abort()
      found.clear()
      failures.clear()
    },
  }

  function fromCache(cache: Map<string, Kept>, host: string): Resolved | undefined {
    const kept = cache.get(host)
    if (kept === undefined) return undefined
    if (clock.monotonicMs() < kept.untilMs) return kept.resolved
    cache.delete(host)
    return undefined
  }

  function startFlight(host: string): Promise<Resolved> {
    if (flights.size >= MAX_IN_FLIGHT) return Promise.resolve({ ok: false, reason: 'dns_timeout', ms: 0 })
    const flight = lookUp(host).finally(() => flights.delete(host))
    flights.set(host, flight)
    return flight
  }

  async function lookUp(host: string): Promise<Resolved> {
    const startedMs = clock.monotonicMs()
    let answers: Answers
    try {
      answers = await askServers(host, { servers, timeoutMs, signal: closing.signal })
    } catch {
      // Only closing aborts it; a name whose look-up could not be made has no addresses.
      return { ok: false, reason: 'dns_failed', ms: clock.monotonicMs() - startedMs }
    }
    const nowMs = clock.monotonicMs()
    const { resolved, keptMs } = readAnswers(answers, nowMs - startedMs)
    if (resolved.ok) keep(found, MAX_KEPT, host, { resolved, untilMs: nowMs + keptMs })
    else keep(failures, MAX_FAILURES_KEPT, host, { resolved, untilMs: nowMs + FAILURE_KEPT_MS })
    if (!resolved.ok && answers.some((one) => one.kind === 'failed' || one.kind === 'timeout'))
      rereadSystemServers(nowMs)
    return resolved
  }

  function rereadSystemServers(nowMs: number): void {
    if (configured !== undefined || nowMs - serversReadMs < SYSTEM_SERVERS_REREAD_MS) return
    serversReadMs = nowMs
    servers = systemServers()
  }
}

function keep(cache: Map<string, Kept>, limit: number, host: string, kept: Kept): void {
  cache.delete(host)
  if (cache.size >= limit) for (const oldest of cache.keys()) if (cache.delete(oldest)) break
  cache.set(host, kept)
}

function readAnswers(answers: Answers, ms: number): { readonly resolved: Resolved; readonly keptMs: number } {
  const records = answers.flatMap((one) => (one.kind === 'addresses' ? one.records : []))
  if (records.length === 0) {
    const slow = answers.some((one) => one.kind === 'timeout')
    return { resolved: { ok: false, reason: slow ? 'dns_timeout' : 'dns_failed', ms }, keptMs: FAILURE_KEPT_MS }
  }
  const addresses = new Map<string, IpAddress>()
  let ttlMs = MAX_KEPT_MS
  for (const { address, ttl } of records) {
    const parsed = parseAddress(address)
    // One that can't be read can't be judged either, and then the set can't.
    if (!parsed.ok) return { resolved: { ok: false, reason: 'dns_failed', ms }, keptMs: FAILURE_KEPT_MS }
    addresses.set(parsed.value.text, parsed.value)
    ttlMs = Math.min(ttlMs, Math.max(0, ttl ?? 0) * 1_000)
  }
  if (addresses.size > MAX_ADDRESSES)
    return { resolved: { ok: false, reason: 'dns_failed', ms }, keptMs: FAILURE_KEPT_MS }
  const partial = answers.some((one) => one.kind === 'failed' || one.kind === 'timeout')
  return {
    resolved: { ok: true, addresses: [...addresses.values()], ms },
    keptMs: partial ? Math.min(ttlMs, FAILURE_KEPT_MS) : ttlMs,
  }
}

/** The caller stops waiting; the look-up goes on for whoever else waits, and for the cache. */
function untilAborted(flight: Promise<Resolved>, signal: AbortSignal): Promise<Resolved> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(reasonOf(signal))
    signal.addEventListener('abort', onAbort, { once: true })
    void flight.then((resolved) => {
      signal.removeEventListener('abort', onAbort)
      resolve(resolved)
    })
  })
}
