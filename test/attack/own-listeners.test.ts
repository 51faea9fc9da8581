/** No order of opening leaves a listener of the gateway reachable through it. */
import { afterEach, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { parseConfig } from '../../proxy/config/parse.ts'
import { type BoundListener, createGateway, type Gateway } from '../../proxy/gateway.ts'
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { WireClient } from '../integration/wire.ts'
import { describeNeeding } from '../provider/needs.ts'

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

/** A gateway for a program that binds: no proxy listener of its own; the operator allows all of loopback. */
async function start(listen: ConfigInput['listen']): Promise<Gateway> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-test-'))
  ends.push(() => fs.rmSync(folder, { recursive: true, force: true }))
  const parsed = parseConfig(
    {
      state: path.join(folder, 'state'),
      log: { level: 'silent' },
      listen,
      policy: { ceiling: { kind: 'allow-all' } },
      network: { allowPrivate: ['127.0.0.0/8', '::1/128'] },
      sni: { ports: [] },
    },
    { folder },
  )
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
  const gateway = await createGateway({ config: parsed.config, machineSets: { sets: { npm: [], apt: [] }, notes: [] } })
  ends.push(() => gateway.close())
  return gateway
}

const bind = (gateway: Gateway, host = '127.0.0.1', port = 0): Promise<BoundListener> =>
  gateway.bind({ host, port, identity: { sandbox: 'sbx', egress: { kind: 'allow-all' } } })

const portOf = ({ address }: BoundListener): number => (address.kind === 'tcp' ? address.port : 0)

async function connect(via: number, target: string): Promise<[number | undefined, string | undefined, WireClient]> {
  const client = await WireClient.connect({ host: '127.0.0.1', port: via })
  ends.push(() => client.destroy())
  client.send(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\n\r\n`)
  const answer = await client.answer()
  return [answer?.status, answer?.headers['x-deny-reason']?.[0], client]
}

test('the admin listener, when it opens after a bound one and no other follows', async () => {
  const gateway = await start({ proxy: 'off', admin: '127.0.0.1:0' })
  const bound = await bind(gateway)
  const { admin } = await gateway.listen()
  const port = admin?.kind === 'tcp' ? admin.port : 0
  expect((await connect(portOf(bound), `127.0.0.1:${port}`)).slice(0, 2)).toEqual([403, 'address_prohibited'])
})

test('a listener on every IPv4 address, however that is written', async () => {
  const gateway = await start({ proxy: 'off', admin: 'off' })
  const first = await bind(gateway)
  const wide = await bind(gateway, '::ffff:0.0.0.0')
  for (const host of ['127.0.0.1', '127.0.0.2', '0.0.0.0'])
    expect((await connect(portOf(first), `${host}:${portOf(wide)}`)).slice(0, 2)).toEqual([403, 'address_prohibited'])
})

test('a tunnel that was open to the port before the gateway listened there is cut', async () => {
  const gateway = await start({ proxy: 'off', admin: 'off' })
  const first = await bind(gateway)
  const server = net.createServer((socket) => socket.on('error', () => socket.destroy())).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as net.AddressInfo
  const [status, , client] = await connect(portOf(first), `127.0.0.1:${port}`)
  expect(status).toBe(200)
  server.close()
  await bind(gateway, '127.0.0.1', port)
  await client.over(1000)
})

describeNeeding(['root', 'namespaces'], 'an address that the machine gets later', () => {
  test('leads to no listener on every address either', async () => {
    const script = fileURLToPath(new URL('later-address-process.ts', import.meta.url))
    const { stdout } = await promisify(execFile)('unshare', ['--net', process.execPath, script], { timeout: 20_000 })
    const expected = ['IPv4', 'IPv6', 'mapped'].flatMap((when) => [
      [`proxy ${when}`, 'address_prohibited'],
      [`admin ${when}`, 'address_prohibited'],
      [`other ${when}`, '200'],
    ])
    expect(JSON.parse(stdout)).toMatchObject(Object.fromEntries(expected))
  })
})
