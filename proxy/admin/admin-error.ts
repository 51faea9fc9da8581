/** How the control API says no: one shape for every fault, and one place that knows the status and the advice of each. */

interface Row {
  readonly status: number
  /** For whoever called, in plain words: what to do about it. */
  readonly advice: string
}

const ERRORS = {
  request_malformed: row(400, 'Correct what `faults` names; `/openapi.json` describes every request.'),
  credentials_missing: row(
    401,
    'Send an admin token as `Authorization: Bearer`; `sallyport token mint --admin --scope read` makes one on the gateway.',
  ),
  credentials_invalid: row(
    401,
    'Use a fresh admin token of this gateway. A token of a sandbox is never accepted here.',
  ),
  scope_missing: row(403, 'Use credentials with one of the scopes that the message names.'),
  not_allowed: row(403, 'The operator sets in `admin.bind` of the configuration where listeners may be bound.'),
  not_found: row(404, 'Check the path and the name in it; `/openapi.json` lists every route.'),
  version_stale: row(
    409,
    'Somebody changed it meanwhile. Read it again, look at the difference, and send the version that you read.',
  ),
  conflict: row(409, 'The message says what stands in the way.'),
  body_too_large: row(413, 'Send less; the limit of every route is in docs/control-api.md.'),
  media_type_not_supported: row(415, 'Send JSON, as `Content-Type: application/json`.'),
  policy_invalid: row(422, 'Correct what `faults` names.'),
  config_invalid: row(422, 'Correct the file that the gateway reads. The old configuration stays in force.'),
  rate_limited: row(429, 'Wait as Retry-After says.'),
  internal: row(500, 'A fault of the gateway; its own log says more.'),
  not_supported: row(501, 'This gateway was started in a way that does not allow it.'),
  busy: row(503, 'Try again in a moment, or ask for less at once.'),
  audit_unavailable: row(503, 'The audit log can not be written, so nothing was changed. Mend that first.'),
  state_unusable: row(503, 'The state folder can not be used, so nothing was changed. The message says why.'),
} as const satisfies Record<string, Row>

/** The `error` of an answer. Stable. */
export type AdminErrorCode = keyof typeof ERRORS

/** Every code, in the order of the documentation. */
export const ADMIN_ERRORS = Object.keys(ERRORS) as readonly AdminErrorCode[]

/** One thing wrong with a request, and where. */
export interface AdminFault {
  /** Such as `policy.allowedHosts[3]`; empty for the whole. */
  readonly path: string
  readonly message: string
  readonly hint?: string
}

/** A fault on its way to the caller. `message` is told as it is: nothing secret goes in. */
export class AdminError extends Error {
  readonly code: AdminErrorCode
  readonly faults: readonly AdminFault[] | undefined
  readonly retryAfterSeconds: number | undefined

  /** `faults` are for `request_malformed`, `policy_invalid` and `config_invalid`. */
  constructor(
    code: AdminErrorCode,
    message: string,
    more: { readonly faults?: readonly AdminFault[]; readonly retryAfterSeconds?: number } = {},
  ) {
    super(message)
    this.code = code
    this.faults = more.faults
    this.retryAfterSeconds = more.retryAfterSeconds
  }
}

/** The HTTP status of a code. */
export function statusOf(code: AdminErrorCode): number {
  return ERRORS[code].status
}

/** What to do about it. */
export function adviceOf(code: AdminErrorCode): string {
  return ERRORS[code].advice
}

function row(status: number, advice: string): Row {
  return { status, advice }
}
