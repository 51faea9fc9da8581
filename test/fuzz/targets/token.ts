/** Tokens with claims and headers of every kind, rightly signed, and what becomes of them when a byte changes. */
import { sign } from 'node:crypto'
import { createIdentifier, type Identified } from '../../../proxy/tokens/identify.ts'
import { describeReason } from '../../../proxy/reasons.ts'
import { publicJwk } from '../../../proxy/tokens/signing-key.ts'
import { tokenKey } from '../keys.ts'
import { randomOf } from '../random.ts'
import { hold, type Target } from '../target.ts'

const NOW_MS = 1_800_000_000_000
const NOW = NOW_MS / 1000
const ISSUER = 'https://own.issuer.test'
const CLIENT = { address: '127.0.0.1', port: 40_000 }
const HEADER = { alg: 'EdDSA', kid: 'fuzz', typ: 'egress+jwt' }
const CLAIMS = { iss: ISSUER, aud: 'sallyport', iat: NOW - 5, exp: NOW + 600, jti: 'j1', sub: 'sbx_1', tenant: 'acme' }
const STATIC = {
  kind: 'static',
  allowedHosts: ['*.example.com', '203.0.113.0/24:443', '@github'],
  deniedHosts: ['x.example.com'],
}
/** Bytes of a token that are changed, one at a time. */
const CHANGES = 3

/** An input is a header and claims, each in JSON, with a line break between them. */
const input = (claims: object | string, header: object | string = HEADER): Buffer =>
  Buffer.from([header, claims].map((part) => (typeof part === 'string' ? part : JSON.stringify(part))).join('\n'))

/** Opens the target. */
export function token(): Target {
  const key = tokenKey()
  const identifier = createIdentifier({
    issuers: [{ issuer: ISSUER, algorithms: ['EdDSA'], keySet: { keys: [publicJwk(key)] } }],
    revocations: { isRevoked: (identity) => identity.tokenId === 'revoked', isCurrent: () => true },
    clock: { wallMs: () => NOW_MS, monotonicMs: () => 0 },
    failures: { addressBurstUs: Infinity, totalBurstUs: Infinity },
    cache: { entries: 64 },
  })
  const identify = async (text: string): Promise<Identified> => {
    const found = await identifier.identify({ kind: 'token', token: text }, CLIENT)
    const again = await identifier.identify({ kind: 'token', token: text }, CLIENT)
    hold(found.ok === again.ok, 'a remembered verdict differs', () => [found, again])
    return found
  }
  return {
    name: 'token',
    maxBytes: 12 * 1024,
    maxCpuMs: 500,
    seeds: [
      input({ ...CLAIMS, egress: { kind: 'allow-all' } }),
      input({ ...CLAIMS, egress: STATIC, cnf: { ip: '127.0.0.1' } }),
      input({ ...CLAIMS, egress: { kind: 'named', name: 'builds' }, nbf: NOW - 5, aud: ['sallyport', 'other'] }),
      input({ ...CLAIMS, jti: undefined, egress: { kind: 'deny-all' } }),
      input({ ...CLAIMS, exp: NOW - 3600 }),
      input({ ...CLAIMS, jti: 'revoked' }),
      input(`{"iss":"${ISSUER}","iss":"${ISSUER}","exp":1e400,"aud":"sallyport"}`),
      input(CLAIMS, { alg: 'none', typ: 'egress+jwt' }),
      input(CLAIMS, { ...HEADER, crit: ['b64'], b64: false }),
      input(CLAIMS, { ...HEADER, alg: 'HS256' }),
    ],
    words: [
      ...[
        '"alg":"none"',
        '"alg":"EdDSA"',
        '"crit":[]',
        '"kid":null',
        '"typ":"JWT"',
        '"exp":',
        '"nbf":',
        '"iat":',
        '"aud":[]',
        '"egress":',
      ],
      ...[
        '"cnf":{}',
        '"__proto__":{}',
        '"constructor":',
        'null',
        'true',
        '1e400',
        '-0',
        '\\u0000',
        '\\ud800',
        '{"a":',
        '[',
        '{',
        '}',
        ',',
      ],
      ...['"kind":"static"', '"allowedHosts":[]', '"*."', '"@npm"', String(NOW), '\n', '\xff', '"tenant":""'],
    ],
    run: async (bytes) => {
      // As it is, nobody signed it.
      hold(!(await identify(bytes.toString('latin1'))).ok, 'what nobody signed is accepted')
      const at = bytes.indexOf(10)
      const parts =
        at === -1 ? [Buffer.from(JSON.stringify(HEADER)), bytes] : [bytes.subarray(0, at), bytes.subarray(at + 1)]
      const signed = parts.map((part) => part.toString('base64url')).join('.')
      const text = `${signed}.${sign(null, Buffer.from(signed), key.key).toString('base64url')}`
      const found = await identify(text)
      checkVerdict(found, text, parts)
      const random = randomOf(bytes)
      for (let left = CHANGES; left > 0; left -= 1) {
        const place = random.below(text.length)
        const other = random.pick(Array.from('AZaz09-_.=+'))
        const changed = text.slice(0, place) + other + text.slice(place + 1)
        if (changed !== text)
          hold(!(await identify(changed)).ok, 'a token is accepted after one of its bytes was changed', () => [
            place,
            other,
          ])
      }
      for (const cut of [text.slice(0, -1), signed, `${signed}.`, `${text}A`, `${text}.`, `${text}=`])
        hold(
          !(await identify(cut)).ok,
          'a token that was cut or made longer is accepted',
          () => cut.length - text.length,
        )
    },
    close: () => identifier.close(),
  }
}

function checkVerdict(found: Identified, text: string, parts: readonly Buffer[]): void {
  if (!found.ok) {
    hold(describeReason(found.reason).status >= 400, 'a token is refused for no reason that is told')
    hold(
      found.detail === undefined || found.detail.length < 4096,
      'the detail of a refusal is long',
      () => found.detail?.length,
    )
    hold(!(found.detail ?? '').includes(text), 'the detail of a refusal repeats the token')
    return
  }
  const { identity } = found
  // An accepted token says what its payload says, to the reader that everybody uses.
  const claims = JSON.parse(String(parts[1])) as Record<string, unknown>
  const header = JSON.parse(String(parts[0])) as Record<string, unknown>
  hold(
    header['alg'] === 'EdDSA' && header['crit'] === undefined,
    'a token with another header is accepted',
    () => header,
  )
  hold(claims['iss'] === ISSUER && identity.issuer === ISSUER, 'a token of another issuer is accepted')
  hold([claims['aud']].flat().includes('sallyport'), 'a token for another audience is accepted', () => claims)
  hold(
    typeof claims['exp'] === 'number' && claims['exp'] >= NOW - 60,
    'a token that has ended is accepted',
    () => claims['exp'],
  )
  hold((claims['tenant'] ?? undefined) === identity.tenant, 'another tenant is read than the token says', () => [
    claims['tenant'],
    identity.tenant,
  ])
  hold(claims['jti'] !== 'revoked', 'a revoked token is accepted')
  hold(
    claims['egress'] !== undefined || identity.claim.kind === 'deny-all',
    'a token without a policy allows something',
    () => identity,
  )
  hold(Number.isFinite(found.tunnelExpiresAtMs), 'a tunnel has no end')
}
