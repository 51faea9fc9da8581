/** A gateway beside one sandbox that sends everything on to a shared one: the sandbox needs no token, and the one for the shared gateway is renewed. */
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { startEcho, startHttp, type Origin } from '../origins/origins.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

let echo: Origin
let web: Origin
beforeAll(async () => {
  echo = await startEcho('127.0.0.1')
  web = await startHttp('127.0.0.1')
})
afterAll(() => Promise.all([echo.close(), web.close()]))
const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

async function startChain(): Promise<{ shared: TestGateway; beside: TestGateway; tokenFile: string }> {
  const shared = await startTestGateway({
    policy: { ceiling: { kind: 'static', allowedHosts: ['origin.example.test:*'] } },
    network: { allowPrivate: ['127.0.0.0/8'], hosts: { 'origin.example.test': '127.0.0.1' } },
  })
  closing.push(() => shared.close())
  const tokenFile = path.join(shared.folder, 'token')
  const renew = await shared.token({ sub: 'pod-1', egress: { kind: 'allow-all' } })
  fs.writeFileSync(tokenFile, `${renew}\n`)
  const beside = await startTestGateway({
    listen: {
      proxy: 'off',
      bound: [
        {
          address: '127.0.0.1:0',
          sandbox: 'sbx_beside',
          egress: { kind: 'static', allowedHosts: ['origin.example.test:*', 'unknown.example.test'] },
        },
      ],
    },
    issuers: [],
    policy: { ceiling: { kind: 'allow-all' } },
    network: { upstream: { url: `http://127.0.0.1:${shared.port}`, tokenFile, resolve: 'upstream' } },
  })
  closing.push(() => beside.close())
  return { shared, beside, tokenFile }
}

async function ask(gateway: TestGateway, text: string): Promise<{ client: WireClient; status: number | undefined }> {
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  closing.push(() => client.socket.destroy())
  client.send(text)
  return { client, status: (await client.answer())?.status }
}
const connect = (authority: string): string => `CONNECT ${authority} HTTP/1.1\r\nHost: x\r\n\r\n`

describe('a bound listener of the configuration, chained by a token', () => {
  test('lets out without credentials; the shared gateway knows the token of the other', async () => {
    const { shared, beside } = await startChain()
    const tunnel = await ask(beside, connect(`origin.example.test:${echo.port}`))
    expect(tunnel.status).toBe(200)
    const plain = await ask(beside, `GET http://origin.example.test:${web.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`)
    expect(plain.status).toBe(200)
    expect(beside.audit().filter((line) => line['kind'] === 'decision')).toMatchObject([
      { sandbox: 'sbx_beside', decision: 'allow' },
      { sandbox: 'sbx_beside', decision: 'allow' },
    ])
    expect(shared.audit().filter((line) => line['kind'] === 'decision')).toMatchObject([
      { sandbox: 'pod-1', decision: 'allow', dialled: '127.0.0.1' },
      { sandbox: 'pod-1', decision: 'allow' },
    ])
  })

  test('both refuse: the near one what its sandbox may not, the far one what nobody may', async () => {
    const { shared, beside } = await startChain()
    expect((await ask(beside, connect('elsewhere.example.test:443'))).status).toBe(403)
    expect(shared.audit().filter((line) => line['kind'] === 'decision')).toEqual([])
    expect((await ask(beside, connect('unknown.example.test:443'))).status).toBe(502)
    expect(await shared.auditLine((line) => line['kind'] === 'decision')).toMatchObject({ reason: 'host_not_allowed' })
  })

  test('credentials that a client sends are neither needed nor passed on', async () => {
    const { shared, beside } = await startChain()
    const other = await shared.token({ sub: 'stolen', egress: { kind: 'allow-all' } })
    const text = `CONNECT origin.example.test:${echo.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${other}\r\n\r\n`
    expect((await ask(beside, text)).status).toBe(200)
    expect(await shared.auditLine((line) => line['kind'] === 'decision')).toMatchObject({ sandbox: 'pod-1' })
  })

  test('a renewed token counts at once; none, or one that is no header, lets nothing out and is told nowhere', async () => {
    const { shared, beside, tokenFile } = await startChain()
    const target = connect(`origin.example.test:${echo.port}`)
    fs.writeFileSync(tokenFile, await shared.token({ sub: 'pod-1b', egress: { kind: 'allow-all' } }))
    expect((await ask(beside, target)).status).toBe(200)
    expect(await shared.auditLine((line) => line['kind'] === 'decision')).toMatchObject({ sandbox: 'pod-1b' })
    for (const content of ['', 'MARKER\r\nProxy-Authorization: x', 'MARKER.not.a-token']) {
      fs.writeFileSync(tokenFile, content)
      expect((await ask(beside, target)).status).toBe(502)
      const plain = `GET http://origin.example.test:${web.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`
      expect((await ask(beside, plain)).status).not.toBe(200)
    }
    fs.rmSync(tokenFile)
    expect((await ask(beside, target)).status).toBe(502)
    expect(JSON.stringify([beside.audit(), shared.audit()])).not.toContain('MARKER')
  })

  test('is not reachable through a gateway', async () => {
    const { beside } = await startChain()
    const own = await startTestGateway({
      listen: { bound: [{ address: '127.0.0.1:0', sandbox: 'a', egress: { kind: 'allow-all' } }], proxy: 'off' },
      policy: { ceiling: { kind: 'allow-all' } },
      network: { allowPrivate: ['127.0.0.0/8'] },
    })
    closing.push(() => own.close())
    expect((await ask(own, connect(`127.0.0.1:${own.port}`))).status).toBe(403)
    // Another gateway's listener is a port like any other.
    expect((await ask(own, connect(`127.0.0.1:${beside.port}`))).status).toBe(200)
  })
})

test.each([
  [
    'both kinds of credentials',
    { network: { upstream: { url: 'http://127.0.0.1:1', credentialsFile: 'a', tokenFile: 'b' } } },
  ],
  [
    'a malformed entry',
    {
      listen: {
        bound: [{ address: '127.0.0.1:0', sandbox: 'a', egress: { kind: 'static' as const, allowedHosts: ['*.com'] } }],
      },
    },
  ],
  [
    'the port of the admin listener',
    { listen: { admin: '127.0.0.1:9', bound: [{ address: '127.0.0.1:9', sandbox: 'a' }] } },
  ],
  ['no sandbox', { listen: { bound: [{ address: '127.0.0.1:0', sandbox: '' }] } }],
])('%s stops the start', async (_what, document) => {
  await expect(startTestGateway(document)).rejects.toThrow()
})
