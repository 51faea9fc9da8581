/** A policy that somebody else knows: asked for, kept a while, refreshed in the background, and denied when it has been out of reach too long. */
import type { CompiledPolicy } from '../../policies/index.ts'

/** What a load brings: the policy, and a short text that changes when it does. */
export interface LoadedPolicy {
  readonly policy: CompiledPolicy
  readonly version: string
}

/** Settings of {@link createDynamicPolicy}. */
export interface DynamicPolicyOptions {
  /** At most one call is under way at any time, however long it takes. Rejecting (or throwing) means out of reach. */
  readonly load: (signal: AbortSignal) => Promise<LoadedPolicy>
  /** How long an answer is fresh. */
  readonly ttlMs: number
  /** How long after that it is kept while loading fails. */
  readonly staleMs: number
  /** The policy is another one than before, or out of reach, or back. Not called for the first answer. */
  readonly onChange: () => void
  readonly onFault: (error: unknown) => void
}

/** Such a policy. */
export interface DynamicPolicy {
  /** A value when there is one, also a stale one; `unavailable` when it is out of reach. A promise only before the first answer. Never rejects. */
  current(): CompiledPolicy | Promise<CompiledPolicy>
  /** Of the current value; empty while there is none. */
  version(): string
  /** Ends refreshing; idempotent. */
  close(): void
}

/** How long a connection waits for the first answer. */
const FIRST_ANSWER_MS = 5_000
/** From a failure to the next try, at most the time to live. */
const RETRY_MS = 5_000

const UNAVAILABLE: CompiledPolicy = { kind: 'unavailable' }

/** Loads nothing until it is asked for the first time; from then on it refreshes by itself, so that open tunnels hear of changes. */
export function createDynamicPolicy(options: DynamicPolicyOptions): DynamicPolicy {
  const { ttlMs, staleMs } = options
  const closing = new AbortController()
  let known: LoadedPolicy | undefined
  let hasFailed = false
  let flight: Promise<void> | undefined
  let refreshTimer: NodeJS.Timeout | undefined
  let expiryTimer: NodeJS.Timeout | undefined

  return {
    current: () => {
      if (closing.signal.aborted) return UNAVAILABLE
      if (known !== undefined) return known.policy
      if (hasFailed) return UNAVAILABLE
      return firstAnswer(load())
    },
    version: () => known?.version ?? '',
    close: () => {
      closing.abort()
      clearTimeout(refreshTimer)
      clearTimeout(expiryTimer)
    },
  }

  function load(): Promise<void> {
    flight ??= attempt().finally(() => (flight = undefined))
    return flight
  }

  async function attempt(): Promise<void> {
    let loaded: LoadedPolicy
    try {
      loaded = await options.load(closing.signal)
    } catch (error) {
      if (closing.signal.aborted) return
      options.onFault(error)
      hasFailed = known === undefined
      refreshTimer = later(Math.min(ttlMs, RETRY_MS), refresh)
      return
    }
    if (closing.signal.aborted) return
    const isChange = known === undefined ? hasFailed : known.version !== loaded.version
    known = loaded
    hasFailed = false
    clearTimeout(expiryTimer)
    expiryTimer = later(ttlMs + staleMs, expire)
    refreshTimer = later(ttlMs, refresh)
    if (isChange) options.onChange()
  }

  function refresh(): void {
    void load()
  }

  /** Also while a call is under way that never ends. */
  function expire(): void {
    if (known === undefined) return
    known = undefined
    hasFailed = true
    options.onChange()
  }

  function firstAnswer(pending: Promise<void>): Promise<CompiledPolicy> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(UNAVAILABLE), FIRST_ANSWER_MS)
      void pending.then(() => {
        clearTimeout(timer)
        resolve(known?.policy ?? UNAVAILABLE)
      })
    })
  }
}

function later(ms: number, run: () => void): NodeJS.Timeout {
  return setTimeout(run, ms).unref()
}
