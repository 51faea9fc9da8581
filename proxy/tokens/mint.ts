/** Makes a token. Whatever the gateway would refuse is refused here first, in words for whoever asked for it. */
import { randomUUID } from 'node:crypto'
import { SallyportError } from '../../policies/error.ts'
import { type EgressPolicyData, type EntrySets, parseAddress, parsePolicy } from '../../policies/index.ts'
import { MAX_LIFE_SECONDS } from './claims.ts'
import { MAX_TOKEN_BYTES } from './credentials.ts'
import type { Binding } from './identity.ts'
import { jose } from './jose.ts'
import type { SigningKey } from './signing-key.ts'

/** What a token is to say. */
export interface MintOptions {
  /** Signs it. */
  readonly key: SigningKey
  /** `iss`, as the gateway's entry for the issuer has it. */
  readonly issuer: string
  /** Default `sallyport`. */
  readonly audience?: string | undefined
  /** `sub`. */
  readonly sandbox?: string | undefined
  readonly tenant?: string | undefined
  /** Without it the token allows nothing. */
  readonly egress?: EgressPolicyData | undefined
  /** The only client certificate or source address that may use it. */
  readonly binding?: Binding | undefined
  /** Default 3,600; at most 86,400. A fraction is fine. */
  readonly lifeSeconds?: number | undefined
  /** `jti`. Default: a random UUID. */
  readonly tokenId?: string | undefined
  /** Milliseconds since the epoch. Default: now. */
  readonly nowMs?: number | undefined
  /** The operator's and the machine's sets, where entries name them. */
  readonly sets?: EntrySets | undefined
}

/** A token, and what revokes it. */
export interface MintedToken {
  readonly token: string
  readonly tokenId: string
  /** Milliseconds since the epoch. */
  readonly expiresAtMs: number
}

/**
 * Signs a token.
 * @throws TypeError for a life, id, tenant, sandbox or binding that no gateway accepts
 * @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault of `egress`; `SALLYPORT_TOKEN_INVALID` when the token would be too long
 */
export async function mintToken(options: MintOptions): Promise<MintedToken> {
  const { key, lifeSeconds = 3_600, tokenId = randomUUID(), nowMs = Date.now() } = options
  if (!(lifeSeconds > 0 && lifeSeconds <= MAX_LIFE_SECONDS)) {
    throw new TypeError(`the life of a token is more than 0 and at most ${MAX_LIFE_SECONDS} seconds`)
  }
  checkText('issuer', options.issuer)
  checkText('tokenId', tokenId)
  checkText('sandbox', options.sandbox)
  checkText('tenant', options.tenant)
  checkPolicy(options.egress, options.sets)
  const issuedAt = Math.floor(nowMs / 1000)
  const expires = issuedAt + lifeSeconds
  const claims = {
    iss: options.issuer,
    aud: options.audience ?? 'sallyport',
    iat: issuedAt,
    exp: expires,
    jti: tokenId,
    sub: options.sandbox,
    tenant: options.tenant,
    egress: options.egress,
    cnf: describeBinding(options.binding),
  }
  const present = Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== undefined))
  const header = { alg: key.algorithm, typ: 'egress+jwt', ...(key.kid !== undefined && { kid: key.kid }) }
  const { SignJWT } = await jose()
  const token = await new SignJWT(present).setProtectedHeader(header).sign(key.key)
  if (token.length > MAX_TOKEN_BYTES) {
    throw new SallyportError(
      'SALLYPORT_TOKEN_INVALID',
      `the token would have ${token.length} bytes, and ${MAX_TOKEN_BYTES} is the most; use a named policy`,
    )
  }
  return { token, tokenId, expiresAtMs: expires * 1000 }
}

function checkText(name: string, value: string | undefined): void {
  if (value !== undefined && (value === '' || value.length > 512)) {
    throw new TypeError(`\`${name}\` has 1 to 512 characters`)
  }
}

function checkPolicy(egress: EgressPolicyData | undefined, sets: EntrySets = new Map()): void {
  if (egress === undefined) return
  const policy = parsePolicy(egress, { from: 'token', sets })
  if (policy.ok) return
  const faults = policy.faults.map((fault) => fault.message).join('; ')
  throw new SallyportError('SALLYPORT_POLICY_INVALID', `the policy for the token is refused: ${faults}`)
}

function describeBinding(binding: Binding | undefined): object | undefined {
  if (binding === undefined) return undefined
  const { certificate, address } = binding
  if (certificate === undefined && address === undefined) throw new TypeError('the binding binds to nothing')
  if (certificate !== undefined && !/^[A-Za-z0-9_-]{43}$/.test(certificate)) {
    throw new TypeError('the certificate of a binding is a SHA-256 thumbprint in base64url')
  }
  if (address !== undefined && !parseAddress(address).ok) throw new TypeError('the address of a binding is none')
  return {
    ...(certificate !== undefined && { 'x5t#S256': certificate }),
    ...(address !== undefined && { ip: address }),
  }
}
