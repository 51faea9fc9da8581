/**
 * Keys from a JWKS URL: fetched at the start, again every ten minutes, and when a token names an unknown key, but for that at most once in 30 s.
 * While the URL does not answer, the last good set stays, for a day at most.
 */
import { readBearerFile } from '../bearer-file.ts'
import { type Clock } from '../clock.ts'
import { type FetchDocument } from './fetch-document.ts'
import { describeIgnored } from './key-file.ts'
import { type KeySetContent, parseKeySet } from './key-set.ts'
import { HeldKeys, type KeyEvent, type KeySource } from './key-source.ts'

/** How a JWKS URL is kept up with. All in milliseconds. */
export interface RefreshTimes {
  /** Between two fetches because of an unknown `kid`; 30 s. */
  readonly cooldownMs: number
  /** Between two fetches in any case, so that a key taken out of the set stops verifying; 10 minutes. */
  readonly refreshMs: number
  /** Before the first attempt after a failure, doubled each time up to `refreshMs / 10`; 1 s. */
  readonly retryMs: number
  /** How long a set is good without a fetch that succeeds; 24 h, the longest life of a token. */
  readonly staleMs: number
}

/** The times of the field: those of the well-known client libraries. */
export const REFRESH_TIMES: RefreshTimes = {
  cooldownMs: 30_000,
  refreshMs: 600_000,
  retryMs: 1_000,
  staleMs: 86_400_000,
}

/** Connections that may wait for one fetch; the next are refused at once, as they are when it brings nothing. */
const MAX_WAITING = 256

/** Starts fetching at once; until the first set is there, tokens wait for it. */
export function urlKeys(options: {
  readonly url: URL
  /** A file with a bearer token for the URL. Such tokens are renewed in place, so it is read for every fetch. */
  readonly tokenFile?: string | undefined
  readonly fetch: FetchDocument
  readonly clock: Clock
  readonly times?: Partial<RefreshTimes>
  readonly onEvent: (event: KeyEvent) => void
}): KeySource {
  const { url, clock, onEvent } = options
  const times = { ...REFRESH_TIMES, ...options.times }
  const held = new HeldKeys()
  const closing = new AbortController()
  let inFlight: Promise<boolean> | undefined
  let waiting = 0
  let failures = 0
  let lastAskedMs = -Infinity
  let lastGoodMs = -Infinity
  let timer: NodeJS.Timeout | undefined

  /** Joins the fetch that is under way, or starts one. Never rejects. */
  function load(): Promise<boolean> {
    inFlight ??= readSet().then((set) => {
      inFlight = undefined
      if (closing.signal.aborted) return false
      return typeof set === 'string' ? keepLast(set) : takeOver(set)
    })
    return inFlight
  }

  function takeOver(set: KeySetContent): boolean {
    failures = 0
    lastGoodMs = clock.monotonicMs()
    loadIn(times.refreshMs)
    const changed = held.replace(set.keys)
    onEvent({ result: changed ? 'loaded' : 'unchanged', keys: held.size, detail: describeIgnored(set) })
    return changed
  }

  function keepLast(fault: string): false {
    loadIn(Math.min(times.retryMs * 2 ** failures, times.refreshMs / 10))
    failures = Math.min(failures + 1, 30)
    onEvent({ result: 'failed', keys: held.size, detail: `${describeUrl(url)}: ${fault}` })
    return false
  }

  function loadIn(ms: number): void {
    clearTimeout(timer)
    timer = setTimeout(() => void load(), ms).unref()
  }

  /** The set, or what was wrong. */
  async function readSet(): Promise<KeySetContent | string> {
    try {
      const bearer = options.tokenFile === undefined ? undefined : await readBearerFile(options.tokenFile)
      const set = parseKeySet(await options.fetch(url, closing.signal, bearer))
      return set.ok ? set.value : set.fault.message
    } catch (error) {
      return error instanceof Error ? error.message : 'the fetch failed'
    }
  }

  async function refresh(): Promise<boolean> {
    const now = clock.monotonicMs()
    if (inFlight === undefined) {
      if (closing.signal.aborted || now - lastAskedMs < times.cooldownMs) return false
      lastAskedMs = now
    } else if (waiting >= MAX_WAITING) return false
    waiting++
    try {
      return await load()
    } finally {
      waiting--
    }
  }

  const isGood = (): boolean => clock.monotonicMs() - lastGoodMs < times.staleMs
  void load()
  return {
    find: (algorithm, kid) => (isGood() ? held.find(algorithm, kid) : undefined),
    holds: (key) => held.has(key) && isGood(),
    lacks: (key) => lastGoodMs !== -Infinity && !held.has(key),
    refresh,
    size: () => (isGood() ? held.size : 0),
    close: () => {
      closing.abort()
      clearTimeout(timer)
    },
  }
}

/** Scheme, host and path: a query may hold a secret. */
function describeUrl(url: URL): string {
  return `key set \`${url.origin}${url.pathname}\``
}
