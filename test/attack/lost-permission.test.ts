/** A permission that is lost while the gateway resolves or dials opens nothing: no byte of the client goes up, and the line says why. */
import net from 'node:net'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import type { BoundListener } from '../../proxy/gateway.ts'
import { openState } from '../../proxy/state/state.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient } from '../integration/wire.ts'
import { type Origin, startEcho } from '../origins/origins.ts'
import { a, type DnsServer, startDnsServer } from '../proxy/egress/dns-server.ts'

const OUTSIDE = '127.66.0.7'
const HOST = 'echo.example.test'
const EGRESS = { egress: { kind: 'allow-all' } }

let echo: Origin
let held: HeldProxy
let dns: DnsServer
/** Answers to DNS wait for it. */
let released: Promise<void>
let release: () => void
let asked: Promise<void>
let onAsked: () => void

beforeAll(async () => {
  echo = await startEcho(OUTSIDE)
  held = await startHeldProxy()
  dns = await startDnsServer(async (query) => {
    onAsked()
    await released
    return query.type === 'A' ? { answers: [a(query.name, OUTSIDE)] } : {}
  })
})
afterAll(() => Promise.all([echo.close(), held.close(), dns.close()]))

const gateways: TestGateway[] = []
const clients: WireClient[] = []
beforeEach(() => {
  echo.reset()
  released = new Promise((resolve) => (release = resolve))
  asked = new Promise((resolve) => (onAsked = resolve))
})
afterEach(async () => {
  release()
  for (const client of clients.splice(0)) client.destroy()
  await Promise.all(gateways.splice(0).map((gateway) => gateway.close()))
})

const NETWORK = { allowPrivate: ['127.66.0.0/24'] }
const POLICY: ConfigInput['policy'] = { ceiling: { kind: 'allow-all' }, tenants: { acme: { kind: 'allow-all' } } }

interface Scene {
  readonly gateway: TestGateway
  readonly network: NonNullable<ConfigInput['network']>
  readonly bound: BoundListener
}

/** What takes the permission away, and what is then said. */
const LOSSES: readonly [string, (scene: Scene) => Promise<unknown>, string][] = [
  [
    'its token is revoked',
    async ({ gateway }) => {
      const state = await openState(path.join(gateway.folder, 'state'))
      await state.revocations.revoke({ tokenId: 'doomed' })
      state.close()
      await new Promise((resolve) => setTimeout(resolve, 600)) // seen by the gateway within a second
    },
    'token_revoked',
  ],
  [
    'the ceiling denies it',
    ({ gateway, network }) =>
      gateway.gateway.reload(() => gateway.config({ network, policy: { ...POLICY, deniedHosts: [HOST] } })),
    'host_denied',
  ],
  [
    'its tenant is no longer known',
    ({ gateway, network }) =>
      gateway.gateway.reload(() => gateway.config({ network, policy: { ceiling: { kind: 'allow-all' } } })),
    'host_not_allowed',
  ],
  [
    'the range that it goes to is taken back',
    ({ gateway, network }) =>
      gateway.gateway.reload(() => gateway.config({ network: { ...network, allowPrivate: ['127.67.0.0/24'] } })),
    'address_prohibited',
  ],
  [
    'its issuer is gone',
    ({ gateway, network }) => {
      const config = gateway.config({ network })
      return gateway.gateway.reload(() => ({
        ...config,
        issuers: config.issuers.filter(({ issuer }) => issuer === 'urn:s'),
      }))
    },
    'token_revoked',
  ],
]

describe.each([
  ['resolves', { resolvers: () => dns.text }],
  ['dials', { upstream: () => held.url }],
] as const)('while the gateway %s', (_doing, setting) => {
  const start = async (): Promise<Scene> => {
    const network = {
      ...NETWORK,
      ...('resolvers' in setting
        ? { resolvers: [setting.resolvers()] }
        : { upstream: setting.upstream(), hosts: { [HOST]: OUTSIDE } }),
    }
    const gateway = await startTestGateway({ network, policy: POLICY, sni: { ports: [] } })
    gateways.push(gateway)
    const bound = await gateway.gateway.bind({
      port: 0,
      identity: { sandbox: 'sbx_bound', egress: { kind: 'allow-all' } },
    })
    return { gateway, network, bound }
  }
  /** Resolves when the gateway is in the middle of it. */
  const inTheMiddle = (): Promise<void> => ('resolvers' in setting ? asked : held.reached())
  const goOn = (): void => ('resolvers' in setting ? release() : held.release())

  const attack = async (port: number, bytes: string): Promise<WireClient> => {
    const client = await WireClient.connect({ host: '127.0.0.1', port })
    clients.push(client)
    client.send(bytes)
    await inTheMiddle()
    return client
  }

  test.each(LOSSES)('%s: CONNECT', async (_what, lose, reason) => {
    const scene = await start()
    const token = await scene.gateway.token({ ...EGRESS, jti: 'doomed', tenant: 'acme' })
    const head = `CONNECT ${HOST}:${echo.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`
    const client = await attack(scene.gateway.port, `${head}early secret`)
    await lose(scene)
    goOn()
    expect((await client.answer())?.headers['x-deny-reason']).toEqual([reason])
    await client.over()
    expect(echo.seen.raw).toBe('')
    expect(decisions(scene.gateway)).toEqual([{ effective: 'deny', reason }])
  })

  test.each(LOSSES)('%s: plain HTTP', async (_what, lose, reason) => {
    const scene = await start()
    const token = await scene.gateway.token({ ...EGRESS, jti: 'doomed', tenant: 'acme' })
    const client = await attack(
      scene.gateway.port,
      `GET http://${HOST}:${echo.port}/secret HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`,
    )
    await lose(scene)
    goOn()
    expect((await client.answer())?.headers['x-deny-reason']).toEqual([reason])
    await client.over()
    expect(echo.seen.raw).toBe('')
    expect(decisions(scene.gateway)).toEqual([{ effective: 'deny', reason }])
  })

  test('its token expires', async () => {
    const { gateway } = await start()
    const exp = Math.floor(Date.now() / 1000) + 2
    const token = await gateway.token({ ...EGRESS, exp })
    const head = `CONNECT ${HOST}:${echo.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`
    const client = await attack(gateway.port, `${head}early secret`)
    await new Promise((resolve) => setTimeout(resolve, exp * 1000 - Date.now() + 20))
    goOn()
    expect((await client.answer())?.headers['x-deny-reason']).toEqual(['token_expired'])
    expect(echo.seen.raw).toBe('')
  })

  test('its bound listener is closed', async () => {
    const { gateway, bound } = await start()
    const port = bound.address.kind === 'tcp' ? bound.address.port : 0
    const client = await attack(port, `CONNECT ${HOST}:${echo.port} HTTP/1.1\r\nHost: x\r\n\r\nearly secret`)
    await bound.close()
    goOn()
    expect((await client.answer())?.headers['x-deny-reason']).toEqual(['token_revoked'])
    expect(echo.seen.raw).toBe('')
    expect(decisions(gateway)).toEqual([{ effective: 'deny', reason: 'token_revoked' }])
  })

  test('its bound listener is given another policy: SOCKS5', async () => {
    const { gateway, bound } = await start()
    const port = bound.address.kind === 'tcp' ? bound.address.port : 0
    const asksFor = `\x05\x01\x00\x05\x01\x00\x03${String.fromCharCode(HOST.length)}${HOST}${String.fromCharCode(echo.port >> 8, echo.port & 255)}`
    await attack(port, `${asksFor}early secret`)
    bound.setEgress({ kind: 'deny-all' })
    goOn()
    await gateway.auditLine((line) => line['reason'] === 'host_not_allowed')
    expect(echo.seen.raw).toBe('')
    expect(decisions(gateway)).toEqual([{ effective: 'deny', reason: 'host_not_allowed' }])
  })
})

test('a name that policy no longer allows when its address comes is not even dialled', async () => {
  const gateway = await startTestGateway({
    network: { ...NETWORK, resolvers: [dns.text] },
    policy: POLICY,
    sni: { ports: [] },
  })
  gateways.push(gateway)
  const client = await WireClient.connect({ host: '127.0.0.1', port: gateway.port })
  clients.push(client)
  const token = await gateway.token(EGRESS)
  client.send(`CONNECT ${HOST}:${echo.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  await asked
  await gateway.gateway.reload(() =>
    gateway.config({
      network: { ...NETWORK, resolvers: [dns.text] },
      policy: { ...POLICY, deniedHosts: ['127.66.0.0/24'] },
    }),
  )
  release()
  expect((await client.answer())?.headers['x-deny-reason']).toEqual(['host_denied'])
  expect(echo.seen.connections).toBe(0)
})

function decisions(gateway: TestGateway): object[] {
  return gateway
    .audit()
    .filter(({ kind }) => kind === 'decision' || kind === 'auth' || kind === 'close')
    .map(({ effective, reason }) => ({ effective, reason }))
}

interface HeldProxy {
  readonly url: string
  /** Resolves when somebody asks. */
  readonly reached: () => Promise<void>
  /** Lets who asked through. */
  readonly release: () => void
  readonly close: () => Promise<void>
}

/** An upstream proxy that takes its time: it answers a CONNECT when it is told to. */
async function startHeldProxy(): Promise<HeldProxy> {
  const sockets = new Set<net.Socket>()
  let held: (() => void)[] = []
  let wake = (): void => undefined
  const server = net.createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
    socket.once('data', (head: Buffer) => {
      const [, host = '', port = ''] = /^CONNECT ([^:]+):(\d+) /.exec(head.toString('latin1')) ?? []
      held.push(() => {
        const origin = net.connect(Number(port), host, () => {
          socket.write('HTTP/1.1 200 OK\r\n\r\n')
          socket.pipe(origin).pipe(socket)
        })
        origin.on('error', () => socket.destroy())
      })
      wake()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}`,
    reached: () => (held.length > 0 ? Promise.resolve() : new Promise((resolve) => (wake = resolve))),
    release: () => {
      for (const letThrough of held) letThrough()
      held = []
    },
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
