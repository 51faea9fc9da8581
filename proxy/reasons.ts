/**
 * Every reason for which a connection is refused, and the one place that says how each is told to the client.
 * The reason is the `x-deny-reason`, the reason phrase, the `error` of the JSON body and the `reason` of the audit line.
 * @see RFC 9209 section 2.3 for the `Proxy-Status` error types, RFC 1928 section 6 for the SOCKS5 replies
 */

interface ReasonRow {
  /** HTTP status. */
  readonly status: 400 | 403 | 405 | 407 | 429 | 431 | 501 | 502 | 503 | 504
  /** `error` parameter of `Proxy-Status`. */
  readonly proxyStatus: string
  /** SOCKS5 reply code. */
  readonly socks: number
  /** For an agent, in plain words: what this is, and what to do instead of retrying. */
  readonly advice: string
}

const POLICY =
  'This is a policy decision of the network gateway, not a fault of the network or of the host. Do not retry and do not try another way round; ask the operator to allow the destination if the task needs it.'
const CREDENTIALS =
  'The gateway did not accept the proxy credentials. Retrying with the same credentials will not help; obtain a fresh token from the host that started this sandbox.'
const REQUEST =
  'The gateway could not read this as a proxy request. Retrying the same request will not help; correct it.'
const LIMIT =
  'A limit of this sandbox or tenant was reached. Wait as Retry-After says before trying again, and use fewer connections.'
const DNS = 'Policy allows this destination, but its name could not be resolved. Check the spelling of the host name.'
const CONNECT =
  'Policy allows this destination, but the gateway could not connect to it. The host may be down; trying later may help.'
const GATEWAY =
  'The gateway cannot serve the request at the moment and refuses rather than let it through unchecked. Trying later may help.'

const REASONS = {
  token_missing: row(
    407,
    'http_request_denied',
    2,
    'The gateway needs proxy credentials: send the token in Proxy-Authorization, or as the password of the proxy URL.',
  ),
  token_malformed: row(407, 'http_request_denied', 2, CREDENTIALS),
  token_signature_invalid: row(407, 'http_request_denied', 2, CREDENTIALS),
  token_issuer_unknown: row(407, 'http_request_denied', 2, CREDENTIALS),
  token_audience_mismatch: row(407, 'http_request_denied', 2, CREDENTIALS),
  token_expired: row(407, 'http_request_denied', 2, CREDENTIALS),
  token_not_yet_valid: row(407, 'http_request_denied', 2, CREDENTIALS),
  token_revoked: row(407, 'http_request_denied', 2, CREDENTIALS),
  token_binding_mismatch: row(407, 'http_request_denied', 2, CREDENTIALS),
  token_claims_invalid: row(407, 'http_request_denied', 2, CREDENTIALS),
  host_not_allowed: row(403, 'http_request_denied', 2, POLICY),
  host_denied: row(403, 'http_request_denied', 2, POLICY),
  port_not_allowed: row(403, 'http_request_denied', 2, POLICY),
  address_not_allowed: row(403, 'http_request_denied', 2, POLICY),
  address_prohibited: row(403, 'destination_ip_prohibited', 2, POLICY),
  target_malformed: row(400, 'http_request_error', 1, REQUEST),
  request_malformed: row(400, 'http_request_error', 1, REQUEST),
  method_not_allowed: row(
    405,
    'http_request_error',
    7,
    'The gateway does not serve this method. Use CONNECT for https, or an absolute http:// URL with an ordinary method.',
  ),
  scheme_not_supported: row(
    501,
    'http_request_error',
    7,
    'The gateway serves only http:// in absolute form. For https use CONNECT: set the proxy as an https proxy of the client.',
  ),
  head_too_large: row(
    431,
    'http_request_error',
    1,
    'The head of the request is larger than 32 KiB. Send fewer or shorter headers.',
  ),
  tunnel_limit: row(429, 'connection_limit_reached', 1, LIMIT),
  rate_limit: row(429, 'connection_limit_reached', 1, LIMIT),
  byte_quota: row(429, 'connection_limit_reached', 1, LIMIT),
  dns_failed: row(502, 'dns_error', 4, DNS),
  dns_timeout: row(504, 'dns_timeout', 4, DNS),
  connect_refused: row(502, 'connection_refused', 5, CONNECT),
  connect_unreachable: row(502, 'destination_ip_unroutable', 3, CONNECT),
  connect_timeout: row(504, 'connection_timeout', 6, CONNECT),
  gateway_busy: row(503, 'connection_limit_reached', 1, GATEWAY),
  draining: row(503, 'connection_limit_reached', 1, GATEWAY),
  policy_unavailable: row(503, 'proxy_internal_error', 1, GATEWAY),
  audit_unavailable: row(503, 'proxy_internal_error', 1, GATEWAY),
} as const satisfies Record<string, ReasonRow>

/** Why a connection was refused. Stable: part of the wire and of the audit format. */
export type Reason = keyof typeof REASONS

/** The reasons that say that credentials are missing or bad (HTTP 407, audit kind `auth`). */
export type CredentialReason = Extract<Reason, `token_${string}`>

/** Every reason, in the order of the documentation. */
export const ALL_REASONS = Object.keys(REASONS) as readonly Reason[]

/** How a reason is told to the client. */
export function describeReason(reason: Reason): ReasonRow {
  return REASONS[reason]
}

/** The reason as an HTTP reason phrase: `host_not_allowed` → `Host Not Allowed`. */
export function reasonPhrase(reason: Reason): string {
  return reason.replace(/(^|_)([a-z])/g, (_match, gap: string, letter: string) => (gap && ' ') + letter.toUpperCase())
}

/** Why an open tunnel ended. Stable: part of the audit format. */
export const CLOSE_REASONS = [
  'token_expired',
  'token_revoked',
  'policy_changed',
  'operator',
  'idle_timeout',
  'byte_quota',
  'drain_deadline',
  'client_closed',
  'upstream_closed',
  'error',
  'sni_mismatch',
  'sni_missing',
  'not_tls',
  'hello_timeout',
  'process_lost',
] as const

/** One of {@link CLOSE_REASONS}. */
export type CloseReason = (typeof CLOSE_REASONS)[number]

function row(status: ReasonRow['status'], proxyStatus: string, socks: number, advice: string): ReasonRow {
  return { status, proxyStatus, socks, advice }
}
