/** What server name does a TLS ClientHello ask for? Reads plaintext records as they come in; decrypts nothing, and never throws on bad input. */

/** What a whole ClientHello says. */
export interface ClientHello {
  /** The one `host_name` of the server_name extension, in lower case; `undefined` when the hello has no such extension. RFC 6066 section 3. */
  readonly serverName: string | undefined
  /** Whether the hello carries an encrypted inner hello; then `serverName` is the outer name. */
  readonly ech: boolean
}

/** What the bytes so far amount to. */
export type HelloResult =
  | { readonly state: 'more' }
  | { readonly state: 'done'; readonly hello: ClientHello }
  | { readonly state: 'refused'; readonly reason: HelloFault }

/** Why a tunnel whose hello was read may not go on; each is a close reason. */
export type HelloFault = 'not_tls' | 'sni_mismatch' | 'sni_missing'

/** How the relay gates a tunnel on its ClientHello: nothing goes up before `judge` has seen it whole. */
export interface HelloInspector {
  /** How long the client may take for its hello, in milliseconds. Default 10 000. */
  readonly timeoutMs?: number
  /** Called once, with the whole hello. A reason cuts the tunnel before a byte has gone up; `undefined` lets it go on. */
  readonly judge: (hello: ClientHello) => HelloFault | undefined
}

/** Compares a hello with the CONNECT host in canonical form; `isName` is false for an address literal, which needs no name. */
export function judgeServerName(_hello: ClientHello, _host: string, _isName: boolean): HelloFault | undefined {
  throw new Error('not built yet')
}
