/** No token, key, secret or handle in anything that is said about it: a marker that no output may contain. */
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { openState } from '../../../proxy/state/state.ts'
import { readProxyAuthorization } from '../../../proxy/tokens/credentials.ts'
import { createIdentifier } from '../../../proxy/tokens/identify.ts'
import { secretSigningKey } from '../../../proxy/tokens/signing-key.ts'
import { CLIENT, ISSUER, goodClaims, issuerOf, newKey, rawToken, tokenOf } from './issuing.ts'

const MARKER = 'MARKER-do-not-print-Zm9vYmFy'
const folder = mkdtempSync(join(tmpdir(), 'secrecy-'))
afterAll(() => rmSync(folder, { recursive: true }))

test('neither refusals, nor acceptances, nor key events, nor faults, nor the state repeat credentials', async () => {
  const said: unknown[] = []
  const key = newKey()
  const state = await openState(join(folder, 'state'), { onFault: (message) => said.push(message) })
  const secretFile = join(folder, 'secret')
  const secret = `${MARKER}${'x'.repeat(32)}`
  writeFileSync(secretFile, secret)
  const down = (): Promise<Uint8Array> => Promise.reject(new Error('down'))
  const issuers = [
    issuerOf([key], { optional: ['jti'] }),
    { issuer: 'urn:secret', algorithms: ['HS256'] as const, secretFile },
    { issuer: 'urn:down', algorithms: ['ES256'] as const, jwks: `https://keys.test/set?token=${MARKER}` },
  ]
  const identifier = createIdentifier({
    ...state,
    issuers,
    fetch: down,
    onKeyEvent: (issuer, event) => said.push([issuer, event]),
  })

  const good = await tokenOf(key, { sandbox: 'sbx_1' })
  const tokens = [
    good,
    `${good.slice(0, -20)}${MARKER.slice(0, 20)}`,
    rawToken(key, goodClaims({ secret: MARKER })),
    rawToken(key, goodClaims({ jti: undefined, secret: MARKER })),
    rawToken(key, goodClaims({ exp: MARKER })),
    rawToken(key, goodClaims({ [MARKER]: 1, tenant: 7 })),
    rawToken(key, goodClaims({ iss: MARKER })),
    rawToken(key, goodClaims({ aud: MARKER })),
    rawToken(key, goodClaims({ cnf: { [MARKER]: 1 } })),
    rawToken(key, goodClaims({ cnf: { ip: MARKER } })),
    rawToken(key, goodClaims({ egress: { kind: MARKER } })),
    rawToken(key, goodClaims({ egress: { kind: 'static', allowedHosts: [`https://user:${MARKER}@host.test/`] } })),
    rawToken(key, goodClaims(), { kid: MARKER }),
    rawToken(key, goodClaims(), { alg: MARKER }),
    rawToken(key, goodClaims(), { typ: MARKER }),
    rawToken(key, goodClaims(), `{"${MARKER}`),
    rawToken(key, `{"${MARKER}`),
    rawToken(key, goodClaims({ iss: 'urn:down' })),
    await tokenOf(secretSigningKey(Buffer.from(secret)), { issuer: 'urn:secret' }),
    MARKER,
    `sph_${MARKER}`,
    `sph_${MARKER}MARK`,
  ]
  for (const token of tokens) {
    for (const value of [
      `Bearer ${token}`,
      `Basic ${Buffer.from(`${MARKER}:${token}`).toString('base64')}`,
      `${MARKER} ${token}`,
    ]) {
      const credentials = readProxyAuthorization(value)
      if (credentials.kind === 'malformed') said.push(credentials)
      said.push(await identifier.identify(credentials, CLIENT))
      said.push(await identifier.identify(credentials, CLIENT))
    }
  }
  const handle = await state.handles.mint(good, Date.now() + 60_000)
  said.push(await identifier.identify({ kind: 'token', token: handle }, CLIENT))
  for (const entry of [
    { ...issuerOf([key]), secret: Buffer.from(secret) },
    { issuer: 'urn:x', algorithms: ['ES256'] as const, secretFile },
    { issuer: 'urn:x', algorithms: ['ES256'] as const, jwks: secretFile },
    { issuer: 'urn:x', algorithms: ['ES256'] as const, jwks: `https://user:${MARKER}@keys.test/` },
    { issuer: 'urn:x', algorithms: ['ES256'] as const, keySet: { keys: [{ ...key.key.export({ format: 'jwk' }) }] } },
  ]) {
    try {
      identifier.replace([entry])
    } catch (error) {
      said.push(error)
    }
  }
  identifier.close()
  state.close()

  const output = inspect(said, { depth: 20, maxArrayLength: null, maxStringLength: null }) + JSON.stringify(said)
  const { d = '' } = key.key.export({ format: 'jwk' })
  const kept = ['state/handles', 'state/revocations'].flatMap((part) =>
    readdirSync(join(folder, part)).map((name) => name + readFileSync(join(folder, part, name), 'latin1')),
  )
  expect(said.length).toBeGreaterThan(100)
  expect(output).toContain(ISSUER)
  for (const text of [output, ...kept]) {
    for (const word of [MARKER, secret, d, handle, handle.slice(4), good, ...good.split('.')]) {
      expect(text.includes(word), `contains ${word.slice(0, 6)}…`).toBe(false)
    }
  }
})
