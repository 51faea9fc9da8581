/** What the SDK's errors mean: the platform's own words, our advice, and nothing that was sent in confidence. */
import { cleanText } from '../platform/clean-text.ts'
import { PlatformError, type PlatformFault } from '../platform/platform-error.ts'
import { SandboxError } from '../../sandbox-error.ts'

/** For the message. */
export interface E2bFaultContext {
  /** As people say it: `make a sandbox`. */
  readonly action: string
  readonly template: string
  /** Taken out of every text. */
  readonly secrets: readonly string[]
  /** Whether the platform may have done what was asked when no reply came. */
  readonly isUnsafe: boolean
}

/** Turns whatever the SDK threw into an error of ours. The SDK's own is not kept: it may hold what was sent. */
export function e2bFault(error: unknown, { action, template, secrets, isUnsafe }: E2bFaultContext): SandboxError {
  if (error instanceof SandboxError) return error
  const said = cleanText(wordsOf(error), secrets)
  const status = statusOf(error)
  const make = (fault: PlatformFault, advice: string, outcome: 'known' | 'unknown' = 'known'): PlatformError =>
    new PlatformError(fault, `can't ${action}: ${advice}${said === '' ? '' : `; E2B says \`${said}\``}`, { status, outcome }) // prettier-ignore
  // A reply that never came, or in which the platform itself lost track.
  const unsure = isUnsafe ? 'unknown' : 'known'
  switch (status) {
    case 400:
      return make('request_refused', 'E2B refuses the request')
    case 401:
      return make('credentials_refused', 'E2B refuses the key: check `apiKey`')
    case 403:
      return make('request_refused', 'E2B does not let this team do that: check what its plan and its flags allow')
    case 404:
      return make('not_found', `E2B has no template \`${template}\` for this team: build it, or name another one`)
    case 429:
      return /concurrent|quota|limit of|maximum number/i.test(said)
        ? make('quota_exhausted', 'the team has as many sandboxes as it may: end some (`sallyport sandbox reap --backend e2b`), or ask for more') // prettier-ignore
        : make('rate_limited', 'E2B is asked too often: wait, or make fewer sandboxes at a time')
    case undefined:
      return isUnreadable(error)
        ? make('unreadable_reply', 'what answers is not E2B: look at `domain`, `apiUrl` and proxies in between', unsure)
        : make('unreachable', 'E2B does not answer: look at the network, `domain` and `apiUrl`', unsure)
    default:
      return make('operation_failed', `E2B fails with ${status}: try later, or see its status page`, unsure)
  }
}

/** The SDK has a class for some of them, and a status for the rest. By name, since its module may not be loaded yet. */
export function statusOf(error: unknown): number | undefined {
  if (!(error instanceof Error)) return undefined
  const named = { AuthenticationError: 401, RateLimitError: 429, ServiceBusyError: 503, SandboxNotFoundError: 404, NotFoundError: 404 }[error.name] // prettier-ignore
  if (named !== undefined) return named
  const { statusCode } = error as { readonly statusCode?: unknown }
  return typeof statusCode === 'number' ? statusCode : undefined
}

function isUnreadable(error: unknown): boolean {
  return error instanceof SyntaxError || (error instanceof Error && /JSON|Unexpected token/.test(error.message))
}

function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return ''
  const { code } = (error.cause ?? error) as { readonly code?: unknown }
  return typeof code === 'string' && /^[A-Z_0-9]+$/.test(code) ? `${error.message} (${code})` : error.message
}
