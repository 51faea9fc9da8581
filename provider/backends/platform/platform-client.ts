/** JSON over HTTPS to a platform's API: tried again only where that is safe, inside one deadline; every reply bounded; no credential in any error. */
import net from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { SandboxError } from '../../sandbox-error.ts'
import { cleanText } from './clean-text.ts'
import { createExchanger, type IncomingReply, LostExchange, UnreadableExchange } from './exchange.ts'
import { PlatformError, type PlatformFault } from './platform-error.ts'
import { explainRefusal, type Refusal, type RefusalMeaning } from './refusal.ts'
import { backOffMs, DEFAULT_PACE, parseRetryAfter, type RetryPace } from './retry-after.ts'

/** Which platform, and how it is spoken to. */
export interface PlatformClientOptions {
  /** As people call it; in every message. */
  readonly platform: string
  /** `https:`, with a path if all requests have it; `http:` only to loopback and to names below `.internal`, where it is the network that keeps secrets. */
  readonly baseUrl: string | URL
  /** Headers that prove who asks; asked for each try. Their values are taken out of whatever the platform says. */
  readonly authorize: () => Promise<Readonly<Record<string, string>>>
  /** PEM of authorities instead of the system's own. */
  readonly ca?: string | undefined
  readonly retry?: Partial<RetryPace> | undefined
  /** What a refusal means on this platform, where that is more than its status says; undefined leaves it at that. */
  readonly explain?: ((refusal: Refusal) => RefusalMeaning | undefined) | undefined
}

/** One request. */
export interface PlatformRequest {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Below the base URL, encoded; or a whole URL that the platform itself gave, which must be of the same origin. */
  readonly path: string | URL
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>> | undefined
  /** Sent as JSON. */
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly signal?: AbortSignal | undefined
  /** Milliseconds for all tries together, 60 000 by default. */
  readonly deadlineMs?: number | undefined
  /** Milliseconds for one try, 30 000 by default; more for a request that the platform holds open by design. */
  readonly tryMs?: number | undefined
  /** Statuses that are an answer; any other is an error. */
  readonly expected: readonly number[]
  /**
   * `safe`: doing it twice is doing it once, so that 429, 5xx and lost connections are tried again. `never`: asked once; when it is then not known what
   * became of it, the error has `outcome: 'unknown'`.
   */
  readonly retry: 'safe' | 'never'
  /** What is being done, for the message: `create the container group`. Method and path by default. */
  readonly action?: string | undefined
  /** What is confidential in the body: taken out of whatever the platform says of it. */
  readonly secrets?: readonly string[] | undefined
}

/** An answer. */
export interface PlatformReply {
  readonly status: number
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string | undefined>>
  /** Parsed JSON; undefined where there was no body. Untrusted: whoever reads it checks it. */
  readonly body: unknown
}

/** Speaks to one platform. */
export interface PlatformClient {
  /** @throws PlatformError; the reason of `signal` */
  readonly request: (request: PlatformRequest) => Promise<PlatformReply>
  /** Ends its connections; idempotent. */
  readonly close: () => void
}

const DEADLINE_MS = 60_000
const TRY_MS = 30_000
/** Statuses after which a platform is asked again. */
const PASSING = new Set([408, 429, 500, 502, 503, 504])

/** Connects to nothing yet. @throws TypeError for a base URL to which credentials must not go */
export function createPlatformClient(options: PlatformClientOptions): PlatformClient {
  const { platform } = options
  const base = checkBase(options)
  const pace = { ...DEFAULT_PACE, ...options.retry }
  const exchanger = createExchanger(base.protocol === 'https:', options.ca)

  /** One try: an answer, or the fault and whether another try may help. */
  const once = async (request: PlatformRequest, url: URL, leftMs: number): Promise<PlatformReply | Failure> => {
    const { method, body, signal, expected, retry, secrets = [] } = request
    const credentials = await headersOf(options, leftMs)
    const clean = (text: string): string => cleanText(text, [...secretsIn(credentials), ...secrets])
    const action = request.action ?? `\`${method} ${url.pathname}\``
    const fail = (fault: PlatformFault, said: string, isUnknown: boolean, more: Partial<Failure> = {}): Failure => ({
      mayPass: false,
      ...more,
      error: new PlatformError(fault, `can not ${asDeed(action)}: ${said}`, {
        outcome: isUnknown && retry === 'never' ? 'unknown' : 'known',
      }),
    })
    let reply: IncomingReply
    try {
      reply = await exchanger.exchange({
        url,
        method,
        headers: {
          accept: 'application/json',
          'accept-encoding': 'identity',
          'user-agent': 'sallyport',
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...request.headers,
          ...credentials,
        },
        body: body === undefined ? undefined : Buffer.from(JSON.stringify(body)),
        timeoutMs: Math.max(1, Math.min(request.tryMs ?? TRY_MS, leftMs)),
        signal,
        pooled: retry === 'safe',
      })
    } catch (error) {
      if (error instanceof LostExchange)
        return fail('unreachable', `${platform} at ${base.host} does not answer: ${clean(error.message)}`, error.wasSent, { mayPass: true }) // prettier-ignore
      if (error instanceof UnreadableExchange) return fail('unreadable_reply', `${platform} said something that can not be read: ${clean(error.message)}`, true) // prettier-ignore
      signal?.throwIfAborted()
      throw new PlatformError('request_refused', `can not ${asDeed(action)}: the request can not be sent: ${clean(error instanceof Error ? error.message : '')}`) // prettier-ignore
    }
    const { status, headers, text } = reply
    const parsed = text.trim() === '' ? undefined : parseJson(text)
    const isExpected = expected.includes(status)
    if (isExpected && parsed !== NOT_JSON) return { status, headers: plain(headers), body: parsed }
    if (status < 400 || isExpected) {
      const said =
        parsed === NOT_JSON ? `what is not JSON (status ${status})` : `status ${status}, which nothing was asked for`
      return fail('unreadable_reply', `${platform} said ${said}: \`${clean(text)}\``, status < 400)
    }
    const retryAfterMs = parseRetryAfter(headers['retry-after'], Date.now())
    const meaning = explainRefusal(
      { status, headers: plain(headers), body: parsed === NOT_JSON ? undefined : parsed, text, nowMs: Date.now() },
      { platform, clean, explain: options.explain },
    )
    return {
      mayPass: PASSING.has(status),
      retryAfterMs,
      error: new PlatformError(meaning.fault, `can not ${asDeed(action)}: ${meaning.said}`, {
        // Who answers 5xx may have done it all the same.
        outcome: retry === 'never' && status >= 500 ? 'unknown' : 'known',
        status,
        platformCode: meaning.code,
        retryAfterMs,
      }),
    }
  }

  return {
    request: async (request) => {
      const url = urlOf(base, request, platform)
      const { signal } = request
      const endMs = performance.now() + (request.deadlineMs ?? DEADLINE_MS)
      let earlier: PlatformError | undefined
      for (let tries = 1; ; tries++) {
        signal?.throwIfAborted()
        const outcome = await once(request, url, endMs - performance.now())
        if (!('error' in outcome)) return outcome
        const { error, mayPass, retryAfterMs = 0 } = outcome
        // A last try that had no time left says less than the one before it.
        if (earlier !== undefined && error.fault === 'unreachable' && performance.now() >= endMs) throw earlier
        earlier = error
        const waitMs = Math.max(retryAfterMs, backOffMs(tries, pace))
        const hasTime = performance.now() + waitMs < endMs
        if (request.retry !== 'safe' || !mayPass || !hasTime) throw error
        await delay(waitMs, undefined, signal === undefined ? {} : { signal }).catch(() => signal?.throwIfAborted())
      }
    },
    close: exchanger.close,
  }
}

/** A try that gave no answer. */
interface Failure {
  readonly error: PlatformError
  readonly mayPass: boolean
  readonly retryAfterMs?: number | undefined
}

const NOT_JSON = Symbol('not JSON')

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return NOT_JSON
  }
}

function asDeed(action: string): string {
  return action.startsWith('`') ? `do ${action}` : action
}

function plain(headers: IncomingReply['headers']): PlatformReply['headers'] {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : value]),
  )
}

/** @throws PlatformError `credentials_refused` when there are none to be had; what names itself a fault of ours stays as it is */
async function headersOf(
  { platform, authorize }: PlatformClientOptions,
  leftMs: number,
): Promise<Readonly<Record<string, string>>> {
  let timer: NodeJS.Timeout | undefined
  try {
    const headers = await Promise.race([
      authorize(),
      new Promise<never>((_resolve, reject) => {
        timer = setTimeout(() => reject(new Error('they did not come in time')), Math.max(1, leftMs))
      }),
    ])
    if (Object.values(headers).every((value) => typeof value === 'string' && /^[\x20-\x7e]+$/.test(value)))
      return headers
  } catch (error) {
    if (error instanceof SandboxError) throw error
    // Without the error itself: those of other packages hold requests, and these hold secrets.
    const said = error instanceof Error ? cleanText(error.message.split('\n')[0] ?? '') : ''
    throw new PlatformError('credentials_refused', `no credentials for ${platform} are to be had: ${said || 'no reason was given'}`) // prettier-ignore
  } finally {
    clearTimeout(timer)
  }
  throw new PlatformError('credentials_refused', `the credentials for ${platform} hold what no header may: are there line ends in them?`) // prettier-ignore
}

/** The values, and what follows the name of a scheme. */
function secretsIn(headers: Readonly<Record<string, string>>): readonly string[] {
  return Object.values(headers).flatMap((value) => [value, value.slice(value.indexOf(' ') + 1)])
}

function checkBase({ platform, baseUrl }: PlatformClientOptions): URL {
  const base = new URL(baseUrl)
  const host = base.hostname.replace(/^\[|\]$/g, '')
  const isNear = host === 'localhost' || host.endsWith('.internal') || (net.isIPv4(host) && host.startsWith('127.')) || host === '::1' // prettier-ignore
  if (base.protocol !== 'https:' && !(base.protocol === 'http:' && isNear))
    throw new TypeError(`the URL of ${platform} must be \`https:\`: credentials go there`)
  if (base.username !== '' || base.password !== '' || base.search !== '' || base.hash !== '')
    throw new TypeError(`the URL of ${platform} must be an address alone, without credentials and queries`)
  return base
}

/** @throws PlatformError `unreadable_reply` for an address of the platform's own that leads elsewhere: credentials would follow */
function urlOf(base: URL, { path, query = {} }: PlatformRequest, platform: string): URL {
  const url = typeof path === 'string' ? new URL(`${base.href.replace(/\/$/, '')}${path}`) : new URL(path)
  if (url.origin !== base.origin || url.username !== '' || url.password !== '')
    throw new PlatformError('unreadable_reply', `${platform} names an address that is not at ${base.host}: \`${cleanText(url.host)}\`; nothing is sent there`) // prettier-ignore
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, String(value))
  return url
}
