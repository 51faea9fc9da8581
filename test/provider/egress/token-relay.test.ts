import { generateKeyPairSync } from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Egress, EgressLink } from '../../../provider/egress/egress.ts'
import { remoteEgress } from '../../../provider/egress/remote.ts'
import type { EgressPolicy } from '../../../policies/index.ts'
import { createGateway, type Gateway, parseConfig } from '../../../proxy/index.ts'
import { Client, connectAnswer, startOrigin } from './client.ts'

let root: string
let origin: Awaited<ReturnType<typeof startOrigin>>
let gateway: Gateway
let gatewayPort: number
let egress: Egress
let link: EgressLink | undefined

beforeEach(async () => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  origin = await startOrigin()
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const kid = 'host-1'
  fs.writeFileSync(
    path.join(root, 'jwks.json'),
    JSON.stringify({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid, alg: 'ES256', use: 'sig' }] }),
  )
  const parsed = parseConfig(
    {
      listen: { proxy: '127.0.0.1:0', admin: 'off' },
      state: 'state',
      issuers: [{ issuer: 'https://host.example', algorithms: ['ES256'], jwks: 'jwks.json' }],
      policy: { ceiling: { kind: 'allow-all' } },
      network: { allowPrivate: ['127.0.0.0/8'], hosts: { 'a.example': ['127.0.0.1'], 'b.example': ['127.0.0.1'] } },
      log: { level: 'silent' },
    },
    { folder: root },
  )
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
  gateway = await createGateway({ config: parsed.config, machineSets: { sets: { npm: [], apt: [] }, notes: [] } })
  const [address] = (await gateway.listen()).proxy
  gatewayPort = address?.kind === 'tcp' ? address.port : 0
  const issuerKey = JSON.stringify({ ...privateKey.export({ format: 'jwk' }), kid, alg: 'ES256' })
  egress = remoteEgress({ url: `http://127.0.0.1:${gatewayPort}`, issuer: 'https://host.example', issuerKey })
})

afterEach(async () => {
  vi.useRealTimers()
  await link?.close()
  link = undefined
  await gateway.close()
  await origin.close()
  fs.rmSync(root, { recursive: true, force: true })
})

const socket = (): string => path.join(root, 'g.sock')
const allow = (...hosts: string[]): EgressPolicy => ({
  kind: 'static',
  allowedHosts: hosts.map((host) => `${host}:${origin.port}`),
})
const open = async (policy: EgressPolicy): Promise<EgressLink> =>
  (link = await egress.open({ sandbox: 'sbx_1', tenant: undefined, policy, socketPath: socket() }))
const ask = (host: string): Promise<string> => connectAnswer(socket(), `${host}:${origin.port}`)
const audit = (): Record<string, unknown>[] => {
  const folder = path.join(root, 'state', 'audit')
  return fs
    .readdirSync(folder)
    .flatMap((name) => fs.readFileSync(path.join(folder, name), 'utf8').trim().split('\n'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)
}

describe('a gateway elsewhere', () => {
  test('serves a sandbox that has no token, and knows which one it is', async () => {
    await open(allow('a.example'))
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.[01] 200/)
    expect(await ask('b.example')).toMatch(/^HTTP\/1\.[01] 403[^]*x-deny-reason: host_not_allowed/)
    expect(audit().filter(({ kind }) => kind === 'decision')).toMatchObject([
      { effective: 'allow', sandbox: 'sbx_1', issuer: 'https://host.example' },
      { effective: 'deny', sandbox: 'sbx_1' },
    ])
  })

  test('carries a tunnel both ways, early bytes and half-closes included', async () => {
    const echo = net.createServer({ allowHalfOpen: true }, (peer) => peer.pipe(peer))
    await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve))
    const { port } = echo.address() as net.AddressInfo
    await open({ kind: 'static', allowedHosts: [`a.example:${port}`] })
    const client = new Client(socket()).send(`CONNECT a.example:${port} HTTP/1.1\r\nHost: a\r\n\r\nearly`)
    await client.until(/early/)
    const big = 'x'.repeat(1_000_000)
    client.socket.end(big)
    await client.untilClosed()
    expect(client.text.endsWith(`\r\n\r\nearly${big}`)).toBe(true)
    await new Promise((resolve) => echo.close(resolve))
  })

  test('takes plain requests, several on a connection, with their bodies', async () => {
    await open(allow('a.example'))
    const client = new Client(socket())
    for (const body of ['one', 'three']) {
      client.send(
        `POST http://a.example:${origin.port}/p HTTP/1.1\r\nHost: a.example:${origin.port}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      )
      await client.until(new RegExp(`${body}\\r\\n0\\r\\n\\r\\n$|${body}$`))
    }
    expect(client.text.match(/x-origin: yes/g)).toHaveLength(2)
    client.send(`POST http://b.example:${origin.port}/ HTTP/1.1\r\nHost: b.example\r\nContent-Length: 0\r\n\r\n`)
    await client.until(/x-deny-reason: host_not_allowed/)
    client.socket.destroy()
  })

  test('the token goes to the gateway alone: not to the origin, not into the sandbox', async () => {
    await open(allow('a.example'))
    const client = new Client(socket()).send(
      `GET http://a.example:${origin.port}/ HTTP/1.1\r\nHost: a.example:${origin.port}\r\nProxy-Authorization: Bearer mine\r\nConnection: close\r\n\r\n`,
    )
    await client.untilClosed()
    expect(JSON.stringify(origin.headers())).not.toMatch(/eyJ|mine|proxy-authorization/i)
    expect(client.text + (await ask('a.example')) + (await ask('b.example'))).not.toContain('eyJ')
  })

  test('a sandbox can not name another identity', async () => {
    await open(allow('a.example'))
    const client = new Client(socket()).send(
      `CONNECT b.example:${origin.port} HTTP/1.1\r\nHost: b\r\nProxy-Authorization: Bearer other\r\n\r\n`,
    )
    expect(await client.until(/\r\n\r\n/)).toContain('403')
    client.socket.destroy()
  })

  test('closing cuts what is open and leaves nobody to connect to', async () => {
    const own = await open(allow('a.example'))
    const client = new Client(socket()).send(`CONNECT a.example:${origin.port} HTTP/1.1\r\n\r\n`)
    await client.until(/\r\n\r\n/)
    await Promise.all([own.close(), own.close()])
    await client.untilClosed()
    await expect(ask('a.example')).rejects.toThrow('closed')
  })

  test('another policy: a new token, and what was open under the old one is cut', async () => {
    const own = await open(allow('a.example'))
    const client = new Client(socket()).send(`CONNECT a.example:${origin.port} HTTP/1.1\r\n\r\n`)
    await client.until(/\r\n\r\n/)
    await own.setPolicy(allow('b.example'))
    await client.untilClosed()
    expect(await ask('a.example')).toContain('403')
    expect(await ask('b.example')).toContain(' 200')
  })

  test('a policy that no token can hold fails at once', async () => {
    await expect(open({ kind: 'static', allowedHosts: ['*.com'] })).rejects.toMatchObject({
      code: 'SALLYPORT_POLICY_INVALID',
    })
    expect(fs.existsSync(socket())).toBe(false)
  })

  test('a resolver is asked again for each token, and one that fails lets nothing out', async () => {
    let answer: () => Promise<string[]> = () => Promise.resolve([`a.example:${origin.port}`])
    await open({ kind: 'resolver', resolve: () => answer() })
    expect(await ask('a.example')).toContain(' 200')
    const tokens = new Set(audit().flatMap(({ token_id: id }) => (id === undefined ? [] : [id])))

    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 400_000 })
    answer = () => Promise.reject(new Error('down'))
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 503[^]*x-deny-reason: policy_unavailable/)
    answer = () => Promise.resolve([`b.example:${origin.port}`])
    expect(await ask('a.example')).toContain(' 403')
    for (const { token_id: id } of audit()) if (id !== undefined) tokens.add(id)
    expect(tokens.size).toBe(2)
  })

  test('a token is used again while it has five of its ten minutes left, and no longer', async () => {
    const start = Date.now()
    await open(allow('a.example'))
    const tokenAfter = async (ms: number): Promise<unknown> => {
      vi.useFakeTimers({ toFake: ['Date'], now: start + ms })
      await ask('a.example')
      vi.useRealTimers()
      return audit().findLast(({ kind }) => kind === 'decision')?.['token_id']
    }
    const first = await tokenAfter(1_000)
    expect(await tokenAfter(290_000)).toBe(first)
    expect(await tokenAfter(310_000)).not.toBe(first)
  })

  test('a gateway that is away: refused by name, and the relay lives on', async () => {
    await open(allow('a.example'))
    await gateway.close()
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 502[^]*x-deny-reason: connect_refused/)
    const answer = await new Promise<http.IncomingMessage>((resolve, reject) => {
      http.get({ socketPath: socket(), path: `http://a.example:${origin.port}/` }, resolve).on('error', reject)
    })
    answer.resume()
    expect([answer.statusCode, answer.headers['x-deny-reason']]).toEqual([502, 'connect_refused'])
  })

  test.each(['socks5://127.0.0.1:1', 'http://user:secret@127.0.0.1:1'])('%s is no URL of a gateway', (url) => {
    expect(() => remoteEgress({ url, issuer: 'i', issuerKey: '{}' })).toThrow(TypeError)
  })

  test('a key that is none is refused without a word of it', () => {
    expect(() => remoteEgress({ url: 'http://127.0.0.1:1', issuer: 'i', issuerKey: 'hush' })).toThrow(
      expect.objectContaining({
        code: 'SALLYPORT_KEY_UNREADABLE',
        message: expect.not.stringContaining('hush') as string,
      }) as Error,
    )
  })
})
