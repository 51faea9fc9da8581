/**
 * What does this request-target ask for? Text in, plain data out. Only `http://authority[/path][?query]` is served.
 * The authority is cut out as it came: `parseAuthority` alone says what is a host.
 * @see RFC 9112 section 3.2, RFC 3986 sections 3 and 4.3
 */
import { ownText } from '../own-text.ts'

/** What {@link parseAbsoluteTarget} found. */
export type AbsoluteTarget =
  | {
      readonly ok: true
      /** The raw `host:port`; `:80` is added where no port is given. */
      readonly target: string
      /** What to send to the origin: path and query as they came, `/` for none, `*` for OPTIONS with neither. */
      readonly path: string
    }
  | {
      readonly ok: false
      readonly reason: 'target_malformed' | 'scheme_not_supported' | 'method_not_allowed'
      readonly detail: string
      /** For the audit line: the target without what may be secret, that is user information, path (of an absolute form), query and fragment. */
      readonly requested: string
    }

const ABSOLUTE = /^([A-Za-z][A-Za-z0-9+.-]*):\/\/([^/?#]*)([^#]*)(#?)/
/** Everything that may stand in a path or a query, and what browsers leave unencoded in them (RFC 3986 appendix A names the former). */
const PATH_AND_QUERY = /^[\x21\x24-\x7e]*$/
const DEFAULT_PORT = 80

/** Reads the target of a request whose method is `method`. */
export function parseAbsoluteTarget(method: string, text: string): AbsoluteTarget {
  if (text === '*' && method === 'OPTIONS') {
    return refused('method_not_allowed', 'OPTIONS of the gateway itself is not served', text)
  }
  const [, scheme, authority, rest, fragment] = ABSOLUTE.exec(text) ?? []
  if (scheme === undefined || authority === undefined || rest === undefined) {
    return refused('target_malformed', 'the target is not an absolute http:// URL', text)
  }
  if (scheme.toLowerCase() !== 'http') {
    return refused('scheme_not_supported', 'only http:// is served in absolute form', text)
  }
  const fault = faultOf(authority, rest, fragment === '#')
  if (fault !== undefined) return refused('target_malformed', fault, text)
  return { ok: true, target: ownText(withPort(authority)), path: originForm(method, rest) }
}

function faultOf(authority: string, rest: string, hasFragment: boolean): string | undefined {
  if (hasFragment) return 'a fragment is no part of a request'
  if (authority === '') return 'the target has no host'
  if (authority.includes('@') || isCutUser(authority, rest)) return 'user information is no part of a request'
  if (!PATH_AND_QUERY.test(rest)) return 'the path or query holds a character that must be percent-encoded'
  return undefined
}

/** A password with a slash or question mark in it ends the authority early: what then looks like a port is the beginning of the password. */
function isCutUser(authority: string, rest: string): boolean {
  const afterBrackets = authority.slice(authority.lastIndexOf(']') + 1)
  return rest.includes('@') && afterBrackets.includes(':') && !/:[0-9]*$/.test(afterBrackets)
}

/** A colon outside brackets is taken for the start of a port, also of an empty one: that is for `parseAuthority` to refuse. */
function withPort(authority: string): string {
  const afterBrackets = authority.slice(authority.lastIndexOf(']') + 1)
  return afterBrackets.includes(':') ? authority : `${authority}:${DEFAULT_PORT}`
}

/** RFC 9112 sections 3.2.1 and 3.2.4. */
function originForm(method: string, rest: string): string {
  if (rest === '' && method === 'OPTIONS') return '*'
  return rest.startsWith('/') ? rest : `/${rest}`
}

function refused(
  reason: Extract<AbsoluteTarget, { ok: false }>['reason'],
  detail: string,
  text: string,
): AbsoluteTarget {
  const [, scheme, authority, rest] = ABSOLUTE.exec(text) ?? []
  const known = isCutUser(authority ?? '', rest ?? '') ? '***' : (authority ?? '')
  const shown = scheme === undefined ? (/^[^?#]*/.exec(text)?.[0] ?? '') : `${scheme}://${known}`
  return { ok: false, reason, detail, requested: ownText(shown.split('/').map(withoutUser).join('/')) }
}

/** Once over each part of it: an expression that looks for an `@` does so again from each character. */
function withoutUser(part: string): string {
  const at = part.lastIndexOf('@')
  return at < 0 ? part : `***@${part.slice(at + 1)}`
}
