/** What a platform's refusal means: the fault, the platform's own words, and our advice. */
import type { PlatformFault } from './platform-error.ts'

/** A reply with an error status. */
export interface Refusal {
  readonly status: number
  readonly headers: Readonly<Record<string, string | undefined>>
  /** Parsed JSON; undefined where it is none. */
  readonly body: unknown
  /** The platform's code for it; empty where it gives none. */
  readonly code: string
  /** The platform's words, as they came. */
  readonly message: string
}

/** What it means on one platform. */
export interface RefusalMeaning {
  readonly fault?: PlatformFault | undefined
  /** What to do, as it follows a colon or semicolon. */
  readonly advice?: string | undefined
}

interface Explained {
  readonly fault: PlatformFault
  readonly said: string
  readonly code: string | undefined
}

/** A clock that is off by more spoils tokens, which are valid for minutes. */
const MAX_SKEW_MS = 120_000

/** Puts it in words. */
export function explainRefusal(
  reply: Omit<Refusal, 'code' | 'message'> & { readonly text: string; readonly nowMs: number },
  { platform, clean, explain }: { readonly platform: string; readonly clean: (text: string) => string; readonly explain?: ((refusal: Refusal) => RefusalMeaning | undefined) | undefined }, // prettier-ignore
): Explained {
  const { status, headers, body } = reply
  const { code, message } = wordsOf(body)
  const own = explain?.({ status, headers, body, code, message })
  const fault = own?.fault ?? faultOf(status)
  const words = clean(message === '' && code === '' ? reply.text : message)
  const name = clean(code)
  const said = [
    `${platform} refuses it (${status}${name === '' ? '' : `, ${name}`})${words === '' ? '' : `: ${words.replace(/[.;:\s]+$/, '')}`}`,
    own?.advice ?? ADVICE[fault]?.(platform),
    fault === 'credentials_refused' ? skewOf(headers['date'], reply.nowMs) : undefined,
  ]
  return { fault, said: said.filter((each) => each !== undefined).join('; '), code: name === '' ? undefined : name }
}

const ADVICE: Partial<Readonly<Record<PlatformFault, (platform: string) => string>>> = {
  credentials_refused: (platform) => `check the credentials for ${platform} and what they may do`,
  rate_limited: () => 'too many requests at a time; try later, or make fewer sandboxes at once',
  quota_exhausted: () => 'end sandboxes that are not needed, or ask for a higher quota',
}

function faultOf(status: number): PlatformFault {
  switch (status) {
    case 401:
    case 403:
      return 'credentials_refused'
    case 404:
      return 'not_found'
    case 409:
      return 'name_taken'
    case 429:
      return 'rate_limited'
    default:
      return status >= 500 ? 'operation_failed' : 'request_refused'
  }
}

/** `{error: {code, message}}` as of Azure, `{error: '…'}` as of Fly, `{code, message}` as of many. */
function wordsOf(body: unknown): { readonly code: string; readonly message: string } {
  const outer = asObject(body)
  const inner = asObject(outer['error'])
  const code = [inner['code'], outer['code'], outer['status']].find((each) => typeof each === 'string')
  const message = [inner['message'], outer['message'], outer['error']].find((each) => typeof each === 'string')
  return { code: code ?? '', message: message ?? '' }
}

function asObject(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {}
}

/** Undefined for a clock that is right, or a server that does not say. */
function skewOf(date: string | undefined, nowMs: number): string | undefined {
  const theirsMs = date === undefined ? NaN : Date.parse(date)
  const skewMs = nowMs - theirsMs
  if (Number.isNaN(skewMs) || Math.abs(skewMs) < MAX_SKEW_MS) return undefined
  return `this machine's clock is ${Math.round(Math.abs(skewMs) / 1_000)} s ${skewMs > 0 ? 'ahead of' : 'behind'} theirs, and tokens are valid for minutes: set it right`
}
