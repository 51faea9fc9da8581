/** Tokens that a Kubernetes cluster projects into pods, with its own key set behind a bearer token: an issuer that can put no claim of ours into them. */
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SignJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseConfig } from '../../../proxy/config/parse.ts'
import { createIdentifier } from '../../../proxy/tokens/identify.ts'
import type { KeyEvent } from '../../../proxy/tokens/key-source.ts'
import { NOT_REVOKED, outcomeOf, present } from './issuing.ts'

const CLUSTER = 'https://kubernetes.default.svc.cluster.local'
const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const keySet = JSON.stringify({
  keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k1', alg: 'RS256', use: 'sig' }],
})
const POD = { name: 'worker-7d9', uid: 'd8b1c6a4-1f0e-4f3e-9a51-0c9c3a3b7a11' }
const folder = mkdtempSync(join(tmpdir(), 'service-account-'))
const tokenFile = join(folder, 'token')
const asked: (string | undefined)[] = []
const server = createServer((request, response) => {
  asked.push(request.headers.authorization)
  const isKnown = ['Bearer gateway-1', 'Bearer gateway-2'].includes(request.headers.authorization ?? '')
  response.writeHead(isKnown ? 200 : 401).end(isKnown ? keySet : '{"kind":"Status"}')
})
let jwks: string
beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  jwks = `http://127.0.0.1:${(server.address() as AddressInfo).port}/openid/v1/jwks`
})
afterAll(() => {
  server.close()
  rmSync(folder, { recursive: true })
})

/** As the kubelet fetches it: no `typ`, the audience as a list, everything about the pod inside one claim. */
function projected(changes: Record<string, unknown> = {}): Promise<string> {
  const now = Math.floor(Date.now() / 1000)
  const claims: Record<string, unknown> = {
    aud: ['sallyport'],
    exp: now + 3600,
    iat: now,
    iss: CLUSTER,
    jti: '3c3bd9b0-6d5f-4d2c-9a4e-0f1d2b8a7c11',
    'kubernetes.io': {
      namespace: 'agents',
      node: { name: 'node-1', uid: 'f2a5c3a0-7f1e-4a37-8f0b-9d1f1c5b2e10' },
      pod: POD,
      serviceaccount: { name: 'agent', uid: '0c4ef8a4-55cd-4f6e-8c0a-2f4d3c1b0a99' },
    },
    nbf: now,
    sub: 'system:serviceaccount:agents:agent',
    ...changes,
  }
  return new SignJWT(Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== undefined)))
    .setProtectedHeader({ alg: 'RS256', kid: 'k1' })
    .sign(privateKey)
}

/** Through the file that an operator writes. */
function issuers(changes: Record<string, unknown> = {}) {
  const read = parseConfig(
    {
      issuers: [
        {
          issuer: CLUSTER,
          algorithms: ['RS256'],
          jwks,
          jwksTokenFile: tokenFile,
          typ: ['none'],
          claims: { tenant: ['kubernetes.io', 'namespace'], sandbox: ['kubernetes.io', 'pod', 'uid'] },
          egress: { kind: 'allow-all' },
          ...changes,
        },
      ],
    },
    { environment: {}, folder },
  )
  if (!read.ok) throw new Error(read.faults.map((fault) => fault.message).join('\n'))
  return read.config.issuers
}

async function watched(changes: Record<string, unknown> = {}, content = 'gateway-1\n') {
  writeFileSync(tokenFile, content)
  const events: KeyEvent[] = []
  let told: () => void = () => undefined
  const first = new Promise<void>((resolve) => (told = resolve))
  const identifier = createIdentifier({
    issuers: issuers(changes),
    revocations: NOT_REVOKED,
    refreshTimes: { cooldownMs: 0 },
    onKeyEvent: (_issuer, event) => {
      events.push(event)
      told()
    },
  })
  await first
  return { identifier, events }
}

describe('a projected token of a service account', () => {
  test('names the namespace as tenant and the pod as sandbox, and asks for what its issuer says', async () => {
    const { identifier } = await watched()
    const outcome = await present(identifier, await projected())
    expect(outcome).toMatchObject({
      ok: true,
      identity: {
        issuer: CLUSTER,
        tenant: 'agents',
        sandbox: POD.uid,
        tokenId: '3c3bd9b0-6d5f-4d2c-9a4e-0f1d2b8a7c11',
        claim: { kind: 'allow-all' },
      },
    })
    identifier.close()
  })

  test('asks for nothing where its issuer says nothing', async () => {
    const { identifier } = await watched({ egress: undefined })
    expect(await present(identifier, await projected())).toMatchObject({ identity: { claim: { kind: 'deny-all' } } })
    identifier.close()
  })

  test.each([
    ['for the API server', { aud: [CLUSTER] }, 'token_audience_mismatch'],
    ['without an audience', { aud: undefined }, 'token_claims_invalid'],
    ['of the old kind, which never ends', { exp: undefined }, 'token_claims_invalid'],
    ['for a year', { exp: Math.floor(Date.now() / 1000) + 31_536_000 }, 'token_claims_invalid'],
    ['of another cluster', { iss: 'https://other.cluster.test' }, 'token_issuer_unknown'],
    ['whose pod is a text', { 'kubernetes.io': { namespace: 'agents', pod: 'uid' } }, 'token_claims_invalid'],
    ['whose namespace is a list', { 'kubernetes.io': { namespace: ['agents', 'admin'] } }, 'token_claims_invalid'],
    ['whose pod has an empty uid', { 'kubernetes.io': { namespace: 'a', pod: { uid: '' } } }, 'token_claims_invalid'],
    ['whose members are a list', { 'kubernetes.io': ['namespace'] }, 'token_claims_invalid'],
    ['that brings a null layer', { egress: null }, 'token_claims_invalid'],
  ])('%s is refused', async (_what, changes, reason) => {
    const { identifier } = await watched()
    expect(await outcomeOf(identifier, await projected(changes))).toBe(reason)
    identifier.close()
  })

  test('does not take a tenant from a claim that only looks like the path, nor from what every object has', async () => {
    const flat = await watched()
    const outcome = await present(
      flat.identifier,
      await projected({ 'kubernetes.io.namespace': 'admin', tenant: 'admin', 'kubernetes.io': {} }),
    )
    expect(outcome).toMatchObject({ ok: true, identity: { tenant: undefined, sandbox: undefined } })
    flat.identifier.close()
    const inherited = await watched({ claims: { tenant: ['kubernetes.io', 'constructor', 'name'] } })
    expect(await present(inherited.identifier, await projected())).toMatchObject({ identity: { tenant: undefined } })
    inherited.identifier.close()
  })
})

describe('the token for the key set', () => {
  test('is read again for every fetch, since it is renewed in place', async () => {
    asked.length = 0
    const { identifier, events } = await watched()
    expect(events[0]).toMatchObject({ result: 'loaded', keys: 1 })
    writeFileSync(tokenFile, 'gateway-2')
    await outcomeOf(identifier, await otherKey())
    expect(asked).toEqual(['Bearer gateway-1', 'Bearer gateway-2'])
    identifier.close()
  })

  test.each([
    ['is refused', 'MARKER-stolen'],
    ['is no header', 'MARKER\r\nx: y'],
    ['is empty', ''],
  ])('that %s leaves no keys, and is told nowhere', async (_what, content) => {
    const { identifier, events } = await watched({}, content)
    expect(events[0]).toMatchObject({ result: 'failed', keys: 0 })
    expect(JSON.stringify(events)).not.toContain('MARKER')
    expect(await outcomeOf(identifier, await projected())).toBe('token_signature_invalid')
    identifier.close()
  })

  test('that can not be read leaves no keys', async () => {
    const { identifier, events } = await watched({ jwksTokenFile: join(folder, 'absent') })
    expect(events[0]).toMatchObject({ result: 'failed', detail: expect.stringMatching(/can not be read/) as string })
    identifier.close()
  })

  test.each([
    ['a file of keys', { jwks: 'keys.json' }, /belongs to a URL/],
    ['plain HTTP', { jwks: 'http://keys.test/', unsafePlainHttp: true }, /can read it/],
  ])('is not taken beside %s', (_what, changes, message) => {
    expect(() => issuers(changes)).toThrow(message)
  })

  test.each([
    ['a policy that does not exist', { egress: { kind: 'named', name: 'agents' } }, /no policy in `policy.named`/],
    ['a malformed entry', { egress: { kind: 'static', allowedHosts: ['*.com'] } }, /\*\.com/],
    ['an empty path', { claims: { tenant: [] } }, /./],
  ])('an issuer with %s stops the start', (_what, changes, message) => {
    expect(() => issuers(changes)).toThrow(message)
  })
})

async function otherKey(): Promise<string> {
  const stranger = generateKeyPairSync('rsa', { modulusLength: 2048 })
  return new SignJWT({ iss: CLUSTER }).setProtectedHeader({ alg: 'RS256', kid: 'k2' }).sign(stranger.privateKey)
}
