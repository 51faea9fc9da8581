/**
 * In a network namespace of its own: a gateway on every address, and an address that the machine gets afterwards. Prints, as JSON, what came of connecting
 * through the gateway to its own ports and to another port by that address.
 */
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { parseConfig } from '../../proxy/config/parse.ts'
import { createGateway } from '../../proxy/gateway.ts'
import { WireClient } from '../integration/wire.ts'

const ip = (...args: readonly string[]) => execFileSync('ip', args)
ip('link', 'set', 'lo', 'up')

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-later-'))
const parsed = parseConfig(
  {
    state: folder,
    log: { level: 'silent' },
    listen: { proxy: '0.0.0.0:0', admin: '[::]:0' },
    policy: { ceiling: { kind: 'allow-all' } },
    network: { allowPrivate: ['0.0.0.0/0', '::/0'] },
    sni: { ports: [] },
  },
  { folder },
)
if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
const gateway = await createGateway({ config: parsed.config, machineSets: { sets: { npm: [], apt: [] }, notes: [] } })
const bound = await gateway.bind({ port: 0, identity: { sandbox: 'sbx', egress: { kind: 'allow-all' } } })
const { proxy, admin } = await gateway.listen()
const other = net.createServer((socket) => socket.on('error', () => socket.destroy()).end()).listen(0, '::')
await new Promise((resolve) => other.once('listening', resolve))

const via = bound.address.kind === 'tcp' ? bound.address.port : 0
const proxyPort = proxy.find((address) => address.kind === 'tcp' && address.port !== via)
const ports = {
  proxy: proxyPort?.kind === 'tcp' ? proxyPort.port : 0,
  admin: admin?.kind === 'tcp' ? admin.port : 0,
  other: (other.address() as net.AddressInfo).port,
}

async function ask(host: string, port: number): Promise<string> {
  const client = await WireClient.connect({ host: '127.0.0.1', port: via })
  client.send(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: x\r\n\r\n`)
  const answer = await client.answer()
  client.destroy()
  return answer?.headers['x-deny-reason']?.[0] ?? String(answer?.status)
}

const found: Record<string, string> = {}
for (const [when, address, host] of [
  ['before', undefined, '198.51.100.7'],
  ['IPv4', '198.51.100.7/32', '198.51.100.7'],
  ['IPv6', '2001:db8::7/128', '[2001:db8::7]'],
  ['mapped', undefined, '[::ffff:198.51.100.7]'],
] as const) {
  if (address !== undefined) ip('addr', 'add', address, 'dev', 'lo', ...(address.includes(':') ? ['nodad'] : []))
  for (const [name, port] of Object.entries(ports)) found[`${name} ${when}`] = await ask(host, port)
}
process.stdout.write(JSON.stringify(found))
await gateway.close()
other.close()
fs.rmSync(folder, { recursive: true, force: true })
