/** A gateway on one port, whatever becomes of it, with its control API behind something that can be told to fail; and what it lets machines of the tests out to. */
import fs from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import net, { type AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { freePort } from '../../origins/free-port.ts'
import type { RemoteGateway } from '../../../provider/index.ts'
import { createGateway, type Gateway, openKeys, parseConfig } from '../../../proxy/index.ts'
import { createAuthority } from '../../origins/certificates.ts'
import type { Misbehaviour } from './contract-server.ts'

export const ALLOWED = 'allowed.sallyport.test'
export const REFUSED = 'refused.sallyport.test'

export interface OwnGateway {
  /** For handles. */
  readonly remote: RemoteGateway
  readonly port: number
  /** All that it wrote: its log, its audit files, its metrics. */
  readonly written: () => Promise<string>
  readonly auditLines: () => readonly Readonly<Record<string, unknown>>[]
  /** Its clock goes forward by so much; ours does not. */
  readonly pass: (ms: number) => void
  readonly stop: () => Promise<void>
  readonly start: () => Promise<void>
  /** Requests of the kind (`METHOD /path`, ids and all) fail like that; undefined: well again. */
  readonly spoilControl: (kind: RegExp, how: Misbehaviour | undefined) => void
  readonly close: () => Promise<void>
}

/** On `address`; what it lets out to answers at ports 80 and 443 of an address of loopback. */
export async function startOwnGateway(address: string): Promise<OwnGateway> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spg-'))
  const log: string[] = []
  const write = (fields: object, message: string): void => void log.push(JSON.stringify({ ...fields, message }))
  const origins = await startOrigins()
  const port = await freePort(address)
  const parsed = parseConfig(
    {
      state: 'state',
      listen: { proxy: `${address}:${port}`, admin: `unix:${folder}/admin.sock` },
      issuers: [{ issuer: 'https://own.sallyport.test', algorithms: ['ES256'], stateKeys: true }],
      policy: { ceiling: { kind: 'allow-all' } },
      network: { allowPrivate: ['127.0.0.0/8'], hosts: { [ALLOWED]: [origins.host], [REFUSED]: [origins.host] } },
      log: { level: 'debug' },
    },
    { folder },
  )
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
  const { config } = parsed
  await (await openKeys(config.state)).rotate()
  let gateway: Gateway | undefined
  let aheadMs = 0
  const clock = { wallMs: () => Date.now() + aheadMs, monotonicMs: () => performance.now() + aheadMs }
  const start = async (): Promise<void> => {
    gateway = await createGateway({ config, clock, logger: { info: write, warn: write, error: write }, machineSets: { sets: { npm: [], apt: [] }, notes: [] } }) // prettier-ignore
    await gateway.listen()
  }
  const stop = async (): Promise<void> => {
    await gateway?.close()
    gateway = undefined
  }
  await start()
  const control = await startControlRelay(`${folder}/admin.sock`)
  const audit = (): string =>
    fs
      .readdirSync(config.audit.path, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.jsonl'))
      .map((name) => fs.readFileSync(path.join(config.audit.path, name), 'utf8'))
      .join('')
  return {
    remote: { url: `http://${address}:${port}`, control: { admin: control.url } },
    port,
    written: async () => `${log.join('\n')}\n${audit()}\n${await (await fetch(`${control.url}/metrics`)).text()}`,
    auditLines: () => audit().trim().split('\n').map((line) => JSON.parse(line) as Record<string, unknown>), // prettier-ignore
    pass: (ms) => (aheadMs += ms),
    stop,
    start,
    spoilControl: control.spoil,
    close: async () => {
      await control.close()
      await stop()
      await origins.close()
      fs.rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** Passes on what comes to the control API, or does as it is told. */
async function startControlRelay(socketPath: string) {
  let spoilt: { readonly kind: RegExp; readonly how: Misbehaviour } | undefined
  const server = http.createServer((request, response) => {
    const { method = 'GET', url = '/', headers } = request
    if (spoilt?.kind.test(`${method} ${url}`) === true) {
      spoilt.how(request, response)
      return
    }
    const onward = http.request({ socketPath, method, path: url, headers }, (reply) => {
      response.writeHead(reply.statusCode ?? 0, reply.headers)
      reply.pipe(response)
    })
    onward.on('error', () => response.destroy())
    request.pipe(onward)
  })
  return {
    url: await listening(server, '127.0.0.1', 0),
    spoil: (kind: RegExp, how: Misbehaviour | undefined): void => {
      spoilt = how === undefined ? undefined : { kind, how }
    },
    close: () => closing(server),
  }
}

/** Say their name at both ports. */
async function startOrigins() {
  const host = `127.81.${1 + Math.floor(Math.random() * 250)}.${1 + Math.floor(Math.random() * 250)}`
  const answer: http.RequestListener = (request, response) => {
    // One that begins and never ends.
    if (request.url === '/slow') response.write('slow')
    else response.end(`origin of ${request.headers.host ?? ''}`)
  }
  const plain = http.createServer(answer)
  const secure = https.createServer(createAuthority().issue(ALLOWED), answer)
  await listening(plain, host, 80)
  await listening(secure, host, 443)
  return { host, close: () => Promise.all([plain, secure].map(closing)) }
}

async function listening(server: net.Server, host: string, port: number): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, resolve)
  })
  return `http://${host}:${(server.address() as AddressInfo).port}`
}

async function closing(server: http.Server | https.Server): Promise<void> {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
}
