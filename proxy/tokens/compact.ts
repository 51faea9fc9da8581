/**
 * Takes a JWS in compact form apart, strictly, before anything is verified. Everything in here is the bearer's word and no more.
 * @see RFC 7515 sections 3.1 and 4.1, RFC 8725 (best current practice for JWTs)
 */
import { hash } from 'node:crypto'
import { type Fault, type Parsed, faulty, parsed } from '../../policies/parsed.ts'
import { MAX_TOKEN_BYTES } from './credentials.ts'
import { type JsonObject, ownMember, parseStrictObject } from './strict-json.ts'

/** Longest `kid`; a set's own keys are held to it too, so nothing longer can match. */
export const MAX_KEY_ID_LENGTH = 256

/** Longest encoded header: `alg`, `kid`, `typ` and room for the certificate chain that some issuers add and nobody here reads. */
const MAX_HEADER_LENGTH = 16 * 1024

/** The members of the header that count; the others are ignored, and never followed. */
export interface TokenHeader {
  readonly alg: string
  readonly kid: string | undefined
  readonly typ: string | undefined
}

/** A token taken apart and not verified. */
export interface UnverifiedToken {
  readonly header: TokenHeader
  readonly claims: JsonObject
  /**
   * Stands for the token where it has no `jti`: `sha256:` and the hash, in hex, of header and payload as they were signed. The signature is left
   * out, since an ECDSA signature can be turned into another one that is as good, and that must not undo a revocation.
   */
  readonly hashId: string
}

const PART = /^[A-Za-z0-9_-]+$/

/** Takes a token apart; the fault says what is wrong without repeating it. */
export function parseCompact(token: string): Parsed<UnverifiedToken> {
  if (token.length > MAX_TOKEN_BYTES) return faulty('token_too_long', 'the token is too long')
  const [head = '', payload = '', signature = '', ...more] = token.split('.', 4)
  if (more.length > 0 || signature === '') return faulty('token_parts', 'the token does not have three parts')
  if (head.length > MAX_HEADER_LENGTH) return faulty('header_too_long', 'the header of the token is too long')
  const headBytes = decodePart(head)
  const payloadBytes = decodePart(payload)
  if (!headBytes || !payloadBytes || !decodePart(signature)) {
    return faulty('token_encoding', 'the token is not in base64url')
  }
  const members = parseStrictObject(headBytes, 'header of the token')
  if (!members.ok) return members
  const header = readHeader(members.value)
  if (!header.ok) return header
  const claims = parseStrictObject(payloadBytes, 'payload of the token')
  if (!claims.ok) return claims
  const hashId = `sha256:${hash('sha256', token.slice(0, head.length + 1 + payload.length))}`
  return parsed({ header: header.value, claims: claims.value, hashId })
}

function readHeader(members: JsonObject): Parsed<TokenHeader> {
  // An extension that must be understood, and none is; `b64: false` would have us verify other bytes than those read here.
  if (Object.hasOwn(members, 'crit')) return refuse('header_crit', 'crit', 'asks for an extension')
  if (Object.hasOwn(members, 'b64')) return refuse('header_b64', 'b64', 'is not understood')
  const alg = ownMember(members, 'alg')
  const kid = ownMember(members, 'kid')
  const typ = ownMember(members, 'typ')
  if (typeof alg !== 'string' || alg === '') return refuse('header_alg', 'alg', 'is missing or not a text')
  if (kid !== undefined && (typeof kid !== 'string' || kid.length > MAX_KEY_ID_LENGTH)) {
    return refuse('header_kid', 'kid', 'is not a text, or too long')
  }
  if (typ !== undefined && typeof typ !== 'string') return refuse('header_typ', 'typ', 'is not a text')
  return parsed({ alg, kid, typ })
}

function refuse(code: string, member: string, what: string): { readonly ok: false; readonly fault: Fault } {
  return faulty(code, `\`${member}\` in the header of the token ${what}`)
}

/** Only the one spelling that an encoder makes: no padding, no stray bits at the end. */
function decodePart(text: string): Buffer | undefined {
  if (!PART.test(text)) return undefined
  const bytes = Buffer.from(text, 'base64url')
  return bytes.toString('base64url') === text ? bytes : undefined
}
