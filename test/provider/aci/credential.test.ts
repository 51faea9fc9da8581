/** Tokens by the real package, from an endpoint of this machine. */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import https from 'node:https'
import type net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, expect, test, vi } from 'vitest'
import type { AzureCredential } from '../../../provider/backends/aci/arm-token.ts'
import { startTokenEndpoint, type TokenEndpoint } from './token-endpoint.ts'

vi.setConfig({ testTimeout: 60_000 })
const SOURCE = path.join(import.meta.dirname, '../../../provider/backends/aci/arm-token.ts')
const closers: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function endpoint(): Promise<TokenEndpoint> {
  const made = await startTokenEndpoint()
  closers.push(() => made.close())
  return made
}

/** A process of its own, since the package keeps tokens for the whole of one, and authorities are told by the environment. Prints a line for each answer. */
async function ask(
  credential: AzureCredential,
  environment: Readonly<Record<string, string>>,
  times = 1,
): Promise<readonly string[]> {
  const program = `const { createArmTokenSource } = await import(${JSON.stringify(SOURCE)}); const source = createArmTokenSource(${JSON.stringify(credential)}); for (let count = 0; count < ${times}; count++) console.log(await source().catch((error) => 'refused: ' + error.name))`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { env: { PATH: process.env['PATH'], ...environment }, stdio: ['ignore', 'pipe', 'inherit'] }) // prettier-ignore
  let said = ''
  child.stdout.on('data', (piece: Buffer) => (said += piece.toString()))
  await once(child, 'close')
  return said.trim().split('\n')
}

test('a managed identity gives a token for Azure Resource Manager, which is asked for once', async () => {
  const tokens = await endpoint()
  const [first, second] = await ask({ kind: 'managed-identity', clientId: 'client-1' }, tokens.environment, 2)
  expect([...tokens.given]).toEqual([first])
  expect(second).toBe(first)
  expect(tokens.asked).toHaveLength(1)
  const { searchParams } = new URL(tokens.asked[0] ?? '')
  expect([searchParams.get('resource'), searchParams.get('client_id')]).toEqual(['https://management.azure.com', 'client-1']) // prettier-ignore
})

test('the default identity is the first of its chain that has a token: here the managed one', async () => {
  const tokens = await endpoint()
  const [token] = await ask({ kind: 'default' }, { ...tokens.environment, AZURE_TOKEN_CREDENTIALS: 'ManagedIdentityCredential' }) // prettier-ignore
  expect([...tokens.given]).toEqual([token])
})

test('an endpoint that refuses is a fault, and is asked again by the next call', async () => {
  const tokens = await endpoint()
  tokens.refusal = { status: 400, body: { error: 'invalid_request', error_description: 'Identity not found' } }
  for (const answer of await ask({ kind: 'managed-identity' }, tokens.environment, 2)) expect(answer).toMatch(/^refused: \w+Error$/) // prettier-ignore
  expect(tokens.asked.length).toBeGreaterThan(1)
})

test('a workload identity shows the token of its file to an authority of one’s own', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spw-'))
  closers.push(() => fs.rmSync(folder, { recursive: true }))
  const [key, certificate, federated] = ['key.pem', 'cert.pem', 'federated'].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ]
  execFileSync(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-keyout',
      key,
      '-out',
      certificate,
      '-days',
      '2',
      '-subj',
      '/CN=127.0.0.1',
      '-addext',
      'subjectAltName=IP:127.0.0.1',
    ],
    { stdio: 'ignore' },
  )
  fs.writeFileSync(federated, 'marker-federated-token')
  const bodies: URLSearchParams[] = []
  const authority = https
    .createServer({ key: fs.readFileSync(key), cert: fs.readFileSync(certificate) }, (request, response) => {
      let text = ''
      request.on('data', (piece: Buffer) => (text += piece.toString()))
      request.on('end', () => {
        const origin = `https://${request.headers.host ?? ''}`
        const reply = (body: object): void =>
          void response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body))
        if (request.url?.includes('openid-configuration') === true) {
          reply({
            token_endpoint: `${origin}/tenant/oauth2/v2.0/token`,
            authorization_endpoint: `${origin}/tenant/oauth2/v2.0/authorize`,
            issuer: `${origin}/tenant/v2.0`,
            jwks_uri: `${origin}/keys`,
          })
          return
        }
        bodies.push(new URLSearchParams(text))
        reply({ token_type: 'Bearer', expires_in: 3_600, access_token: 'arm-token-of-the-workload' })
      })
    })
    .listen(0, '127.0.0.1')
  await once(authority, 'listening')
  closers.push(() => void authority.close())
  const credential: AzureCredential = {
    kind: 'workload-identity',
    tenantId: '11111111-2222-4333-8444-555555555555',
    clientId: '66666666-7777-4888-8999-aaaaaaaaaaaa',
    tokenFilePath: federated,
    authorityHost: `https://127.0.0.1:${(authority.address() as net.AddressInfo).port}`,
  }
  expect(await ask(credential, { NODE_EXTRA_CA_CERTS: certificate })).toEqual(['arm-token-of-the-workload'])
  expect(Object.fromEntries(bodies[0] ?? [])).toMatchObject({
    client_assertion: 'marker-federated-token',
    scope: expect.stringContaining('https://management.azure.com/.default') as string,
  })
})
