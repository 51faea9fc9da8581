/** A key that is taken out of an issuer's set ends what tokens under it have open, and lets nothing new out. */
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { SignJWT } from 'jose'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { type Origin, startEcho } from '../origins/origins.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.10'
const OTHER = 'https://other.example.test'
const EGRESS = { egress: { kind: 'allow-all' } }
let echo: Origin
const ends: (() => unknown)[] = []
beforeAll(async () => {
  echo = await startEcho(HOST)
})
afterAll(() => echo.close())
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

const OPEN: ConfigInput = {
  policy: { ceiling: { kind: 'allow-all' } },
  network: { allowPrivate: ['127.66.0.0/24'], hosts: { 'echo.example.test': HOST } },
}

async function start(document: ConfigInput = {}): Promise<TestGateway> {
  const gateway = await startTestGateway({ ...OPEN, ...document })
  ends.push(() => gateway.close())
  return gateway
}

interface Pair {
  readonly jwk: object
  readonly token: () => Promise<string>
}

/** A key of {@link OTHER}, and tokens under it. */
function makePair(kid: string): Pair {
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const claims = { ...EGRESS, iss: OTHER, aud: 'sallyport', sub: 'sbx_other' }
  return {
    jwk: { ...publicKey.export({ format: 'jwk' }), kid, alg: 'ES256', use: 'sig' },
    token: () =>
      new SignJWT({ ...claims, jti: crypto.randomUUID() })
        .setProtectedHeader({ alg: 'ES256', kid, typ: 'egress+jwt' })
        .setIssuedAt()
        .setExpirationTime('10m')
        .sign(privateKey),
  }
}

async function connect(gateway: TestGateway, token: string): Promise<{ client: WireClient; outcome: string }> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  ends.push(() => client.destroy())
  client.send(
    `CONNECT echo.example.test:${echo.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`,
  )
  const answer = await client.answer()
  return { client, outcome: answer?.headers['x-deny-reason']?.join() ?? String(answer?.status) }
}

async function open(gateway: TestGateway, token: string): Promise<WireClient> {
  const { client, outcome } = await connect(gateway, token)
  expect(outcome).toBe('200')
  return client
}

async function stillWorks(client: WireClient): Promise<void> {
  client.send('z')
  expect((await client.take(1)).toString()).toBe('z')
}

const closeReasons = (gateway: TestGateway) =>
  gateway
    .audit()
    .filter((line) => line['kind'] === 'close')
    .map((line) => line['close_reason'])

test('out of a file: cut within two seconds, a second after the look at the file', async () => {
  const gateway = await start()
  const file = path.join(gateway.folder, 'other.json')
  const [kept, gone] = [makePair('kept'), makePair('gone')]
  fs.writeFileSync(file, JSON.stringify({ keys: [kept.jwk, gone.jwk] }))
  await gateway.gateway.reload(() =>
    gateway.config({ issuers: [{ issuer: OTHER, algorithms: ['ES256'], jwks: file }] }),
  )
  const goneToken = await gone.token()
  const [stays, ends] = [await open(gateway, await kept.token()), await open(gateway, goneToken)]
  const bystander = await open(gateway, await gateway.token(EGRESS))
  fs.writeFileSync(file, JSON.stringify({ keys: [kept.jwk] }))
  const sinceMs = Date.now()
  await ends.over(3000)
  expect(Date.now() - sinceMs).toBeLessThan(2000)
  await gateway.auditLine((line) => line['kind'] === 'close')
  expect(closeReasons(gateway)).toEqual(['token_revoked'])
  expect((await connect(gateway, goneToken)).outcome).toBe('token_signature_invalid')
  await stillWorks(stays)
  await stillWorks(bystander)
})

test('a secret that is replaced, and all keys at once', async () => {
  const gateway = await start()
  const [first, second] = [
    await open(gateway, await gateway.shortToken(EGRESS)),
    await open(gateway, await gateway.token(EGRESS)),
  ]
  fs.writeFileSync(path.join(gateway.folder, 'secret'), crypto.randomBytes(40))
  await first.over(3000)
  await stillWorks(second)
  fs.writeFileSync(path.join(gateway.folder, 'jwks.json'), JSON.stringify({ keys: [] }))
  await second.over(3000)
  await expect.poll(() => closeReasons(gateway)).toEqual(['token_revoked', 'token_revoked'])
})

test('a file that is broken or gone changes nothing', async () => {
  const gateway = await start()
  const client = await open(gateway, await gateway.token(EGRESS))
  fs.writeFileSync(path.join(gateway.folder, 'jwks.json'), 'nonsense')
  await new Promise((resolve) => setTimeout(resolve, 1500)) // longer than a look at the file takes to come
  fs.rmSync(path.join(gateway.folder, 'jwks.json'))
  await new Promise((resolve) => setTimeout(resolve, 1500))
  await stillWorks(client)
})

test('out of a set behind a URL: cut within a second of the fetch; while the URL fails nothing is', async () => {
  const [kept, gone, later] = [makePair('kept'), makePair('gone'), makePair('later')]
  let keys: readonly object[] | 'broken' = [kept.jwk, gone.jwk]
  let fetched = 0
  const server = createServer((_req, res) => {
    fetched++
    if (keys === 'broken') res.writeHead(500).end()
    else res.end(JSON.stringify({ keys }))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  ends.push(() => server.close())
  const jwks = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const gateway = await start({ issuers: [{ issuer: OTHER, algorithms: ['ES256'], jwks }] })
  const [stays, ends_] = [await open(gateway, await kept.token()), await open(gateway, await gone.token())]

  // Another URL that has given nothing yet says nothing about anybody.
  keys = 'broken'
  const before = fetched
  await gateway.gateway.reload(() =>
    gateway.config({ issuers: [{ issuer: OTHER, algorithms: ['ES256'], jwks: `${jwks}other` }] }),
  )
  await expect.poll(() => fetched).toBeGreaterThan(before)
  await stillWorks(ends_)

  // A token that names a key which is not held makes the gateway look again.
  keys = [kept.jwk, later.jwk]
  await open(gateway, await later.token())
  const sinceMs = Date.now()
  await ends_.over(2000)
  expect(Date.now() - sinceMs).toBeLessThan(1000)
  await gateway.auditLine((line) => line['kind'] === 'close')
  expect(closeReasons(gateway)).toEqual(['token_revoked'])
  await stillWorks(stays)
})

test('by a reload that names another file: cut; the same key in another file is the same key', async () => {
  const gateway = await start()
  const [kept, gone] = [makePair('kept'), makePair('gone')]
  const [first, second] = ['first.json', 'second.json'].map((name) => path.join(gateway.folder, name))
  fs.writeFileSync(first!, JSON.stringify({ keys: [kept.jwk, gone.jwk] }))
  fs.writeFileSync(second!, JSON.stringify({ keys: [kept.jwk] }))
  const reload = (jwks: string) =>
    gateway.gateway.reload(() => gateway.config({ issuers: [{ issuer: OTHER, algorithms: ['ES256'], jwks }] }))
  await reload(first!)
  const [stays, ends] = [await open(gateway, await kept.token()), await open(gateway, await gone.token())]
  await reload(second!)
  await ends.over(1000)
  await gateway.auditLine((line) => line['kind'] === 'close')
  expect(closeReasons(gateway)).toEqual(['token_revoked'])
  await stillWorks(stays)
})
