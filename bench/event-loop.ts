/**
 * How long may a connection wait because the gateway is at something else? `node bench/event-loop.ts [--of api|resolver|files|keys|flood] [--only WORDS] [--core 1]
 * [--json FILE]`
 * Does to a gateway what is large or much, and prints the longest turn of its event loop for each: its processor time, which the machine's other load does not
 * change, and the delay by the clock beside that of an idle process on the same core at the same time. Needs Linux, bash and taskset. Ends with 1 when
 * a turn took more than 20 ms of processor time.
 */
import { spawn } from 'node:child_process'
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { stringify } from 'yaml'
import { type BenchGateway, runBeside, startBenchGateway } from './bench-gateway.ts'
import type { LoopReading } from './loop-gateway.ts'

const HOST = '127.0.0.1'
/** Who is not turned away after a flood from the other. */
const GOOD_HOST = '127.0.0.2'
const MOST_MS = 20
const ENTRIES = 100_000
const FLOOD_SECONDS = 3
const FLOOD_AT_A_TIME = 200

const { values } = parseArgs({
  options: {
    of: { type: 'string' },
    only: { type: 'string', default: '' },
    core: { type: 'string', default: '1' },
    json: { type: 'string' },
  },
})
const core = Number(values.core)
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-loop-'))
const results: { readonly what: string; readonly gateway: LoopReading; readonly idle: LoopReading }[] = []
// Also where this only starts the program that is pinned.
process.once('exit', () => fs.rmSync(folder, { recursive: true, force: true }))
await runBeside(core, main)

async function main(): Promise<void> {
  const idleSocket = path.join(folder, 'idle')
  const program = path.join(import.meta.dirname, 'loop-gateway.ts')
  const idle = spawn(process.execPath, [program, '-', idleSocket], { stdio: 'inherit' })
  const keys = await startKeys()
  console.log(
    ['what', 'longest turn, processor ms', 'of it, collecting', 'longest delay ms', 'of an idle process'].join('\t'),
  )
  try {
    await withGateway('api', { policy: { ceiling: { kind: 'allow-all' } } }, ofControlApi)
    const resolver = http
      .createServer((_request, response) => response.end(JSON.stringify(policyOf(0))))
      .listen(0, HOST)
    await once(resolver, 'listening')
    const url = `http://${HOST}:${portOf(resolver)}/{tenant}`
    await withGateway('resolver', { policy: { ceiling: { kind: 'allow-all' }, tenantResolver: { url } } }, ofResolver)
    resolver.close()
    await withGateway(
      'files',
      { policy: { ceiling: { kind: 'allow-all' }, tenantFiles: { path: tenantFolder() } } },
      ofFiles,
    )
    await withGateway(
      'keys',
      {
        issuers: ['many', 'hangs'].map((issuer) => ({
          issuer,
          algorithms: ['ES256' as const],
          jwks: `http://${HOST}:${portOf(keys)}/${issuer}`,
        })),
      },
      ofKeys,
    )
    await withGateway('flood', { policy: { ceiling: { kind: 'allow-all' } } }, ofFloods)
  } finally {
    idle.kill()
    keys.close()
    keys.closeAllConnections()
  }
  report()

  async function withGateway(
    name: string,
    document: Parameters<typeof startBenchGateway>[1],
    work: (gateway: BenchGateway, measure: Measure) => Promise<void>,
  ): Promise<void> {
    if (values.of !== undefined && values.of !== name) return
    const socket = path.join(folder, `${name}.loop`)
    const common = {
      network: { allowPrivate: ['127.0.0.0/8'] },
      limits: { tunnels: 50_000, perSandbox: { tunnels: 50_000, newPerSecond: 100_000 } },
    }
    const options = { program: 'bench/loop-gateway.ts', args: [socket] }
    const gateway = await startBenchGateway(core, { ...common, ...document }, options)
    const measure: Measure = async (what, act) => {
      if (!what.includes(values.only)) {
        await act()
        return
      }
      await Promise.all([read(socket), read(idleSocket)])
      await act()
      await new Promise((resolve) => setTimeout(resolve, 50))
      const [own, others] = await Promise.all([read(socket), read(idleSocket)])
      results.push({ what, gateway: own, idle: others })
      console.log(
        [what, ...[own.turnCpuMs, own.turnGcMs, own.delayMs, others.delayMs].map((ms) => ms.toFixed(1))].join('\t'),
      )
    }
    try {
      await new Promise((resolve) => setTimeout(resolve, 500))
      await measure(`${name}: nothing`, () => new Promise((resolve) => setTimeout(resolve, 2000)))
      await work(gateway, measure)
    } finally {
      await gateway.stop()
      fs.rmSync(gateway.folder, { recursive: true, force: true })
    }
  }
}

type Measure = (what: string, act: () => Promise<unknown>) => Promise<void>

/** `ENTRIES` names; another `seed` gives other ones. */
function policyOf(seed: number, entries = ENTRIES) {
  return {
    kind: 'static',
    allowedHosts: Array.from({ length: entries }, (_none, at) => `h${at}-${seed}.tenant.example.test`),
  }
}

async function ofControlApi(gateway: BenchGateway, measure: Measure): Promise<void> {
  const put = async (tenant: string, policy: object, replaces: string | null) =>
    (await gateway.control('PUT', `/v1/policies/${tenant}`, { policy, replaces })) as { version: string }
  let version: string | null = null
  for (const times of ['first', 'second', 'third'])
    await measure(`control API: policy of ${ENTRIES} entries, ${times} put`, async () => {
      ;({ version } = await put('big', policyOf(times.length), version))
    })
  await measure('control API: the same, check', () =>
    gateway.control('POST', '/v1/policies/big:check', { policy: policyOf(9) }),
  )
  await measure('control API: the same, read', () => gateway.control('GET', '/v1/policies/big'))
  await measure('reload beside it', () => gateway.control('POST', '/v1/reload'))
  await measure('control API: 4 MiB that are no policy', () =>
    put('bad', { kind: 'static', allowedHosts: Array(1_000_000).fill(1) }, null).catch(() => undefined),
  )
  await measure('control API: 4 MiB of brackets', () => postText(gateway, '['.repeat(4_000_000)))
  await measure('control API: 1,000 tenants', async () => {
    for (let at = 0; at < 1000; at++) await put(`t${at}`, policyOf(at, 20), null)
  })
  await measure('control API: list of tenants', () => gateway.control('GET', '/v1/policies?limit=1000'))
}

async function ofResolver(gateway: BenchGateway, measure: Measure): Promise<void> {
  for (const at of ['first', 'second']) {
    const token = await gateway.token({ sub: 's', tenant: at })
    await measure(`resolver: policy of ${ENTRIES} entries, ${at} tenant`, () =>
      connect(gateway.port, token, 'a.test:443'),
    )
  }
}

function tenantFolder(): string {
  const tenants = path.join(folder, 'tenants')
  fs.mkdirSync(tenants, { mode: 0o700 })
  return tenants
}

async function ofFiles(gateway: BenchGateway, measure: Measure): Promise<void> {
  const write = (name: string, text: string): void => {
    fs.writeFileSync(path.join(folder, 'next'), text)
    fs.renameSync(path.join(folder, 'next'), path.join(folder, 'tenants', name))
  }
  const untilInForce = async (count: number): Promise<void> => {
    for (let tries = 0; tries < 600; tries++) {
      const status = JSON.parse((await get(gateway, '/v1/status')).text) as { tenantFiles?: { tenants: number } }
      if ((status.tenantFiles?.tenants ?? 0) >= count) return
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
  const settled = () => new Promise((resolve) => setTimeout(resolve, 3000))
  for (const [seed, name] of ['json', 'json again'].entries())
    await measure(`file: ${name}, ${ENTRIES} entries`, async () => {
      write('big.json', JSON.stringify(policyOf(seed)))
      await settled()
    })
  for (const entries of [10_000, 30_000])
    await measure(`file: YAML, ${entries} entries`, async () => {
      write(`yaml${entries}.yaml`, stringify(policyOf(2, entries)))
      await settled()
    })
  await measure('file: YAML of aliases', async () => {
    const levels = Array.from(
      { length: 12 },
      (_none, at) => `a${at + 1}: &a${at + 1} [${`*a${at}, `.repeat(9)}*a${at}]`,
    )
    write('bomb.yaml', `a0: &a0 x\n${levels.join('\n')}\n`)
    await settled()
  })
  await measure('file: YAML of depth', async () => {
    write('deep.yaml', '['.repeat(1_000_000))
    await settled()
  })
  await measure('file: 10,000 tenants', async () => {
    for (let at = 0; at < 9_990; at++) write(`t${at}.json`, JSON.stringify(policyOf(at, 20)))
    await settled()
    await untilInForce(9_990)
  })
  await measure('file: 10,000 tenants, again', async () => {
    for (let at = 0; at < 9_990; at++) write(`t${at}.json`, JSON.stringify(policyOf(at + 1, 20)))
    await new Promise((resolve) => setTimeout(resolve, 10_000))
  })
  await measure('metrics beside 10,000 tenants', () => get(gateway, '/metrics'))
  await measure('reload beside 10,000 tenants', () => gateway.control('POST', '/v1/reload'))
}

async function ofKeys(gateway: BenchGateway, measure: Measure): Promise<void> {
  const { privateKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const { SignJWT } = await import('jose')
  const token = (issuer: string, kid: string) =>
    new SignJWT({
      iss: issuer,
      aud: 'sallyport',
      iat: 1,
      exp: 4_000_000_000,
      jti: kid,
      sub: 's',
      egress: { kind: 'allow-all' },
    })
      .setProtectedHeader({ alg: 'ES256', kid, typ: 'egress+jwt' })
      .sign(privateKey)
  await measure('JWK set of 100 keys', async () => connect(gateway.port, await token('many', 'k1'), 'a.test:443'))
  await measure('JWK set that hangs, 200 tokens', async () => {
    const tokens = await Promise.all(Array.from({ length: 200 }, (_none, at) => token('hangs', `k${at}`)))
    await Promise.all(tokens.map((one) => connect(gateway.port, one, 'a.test:443')))
  })
}

async function ofFloods(gateway: BenchGateway, measure: Measure): Promise<void> {
  const token = await gateway.token({ sub: 'flood', egress: { kind: 'static', allowedHosts: ['127.0.0.0/8:*'] } })
  const flood = (what: string, head: (at: number) => string) =>
    measure(what, async () => {
      const endMs = performance.now() + FLOOD_SECONDS * 1000
      let count = 0
      const one = async (): Promise<void> => {
        while (performance.now() < endMs) await ask(gateway.port, head(count++))
      }
      await Promise.all(Array.from({ length: FLOOD_AT_A_TIME }, one))
      console.error(`${what}: ${Math.round(count / FLOOD_SECONDS)} a second`)
    })
  await flood('refusals by policy', (at) => head(`h${at}.example.test:443`, token))
  await flood('random tokens', () => head('a.test:443', crypto.randomBytes(300).toString('base64url')))
  await flood('tokens with a wrong signature', (at) =>
    head('a.test:443', `${token.slice(0, -20)}${String(at).padStart(20, 'A')}`),
  )
  await flood('tokens of 8 KiB', () => head('a.test:443', crypto.randomBytes(6000).toString('base64url')))
  await flood('heads of 64 KiB', () => `CONNECT a.test:443 HTTP/1.1\r\n${'X-A: b\r\n'.repeat(8000)}\r\n`)
  const { port, close } = await startOrigin()
  const open: net.Socket[] = []
  await measure('5,000 tunnels open', async () => {
    while (open.length < 5000)
      open.push(
        ...(await Promise.all(Array.from({ length: 100 }, () => tunnel(gateway.port, `${HOST}:${port}`, token)))),
      )
  })
  await measure('5,000 tunnels cut', async () => {
    await gateway.control('POST', '/v1/revocations', { sandbox: 'flood' })
    await Promise.all(open.map(async (socket) => socket.closed || (await once(socket, 'close'))))
  })
  close()
  await measure('audit: query', () => gateway.control('GET', '/v1/audit?limit=1000'))
  await measure('audit: query by name', () => gateway.control('GET', '/v1/audit?limit=1000&host=h5.example.test'))
  await measure('audit: summary', () => get(gateway, '/v1/audit/summary'))
  const tokens = await Promise.all(
    Array.from({ length: 2000 }, (_none, at) => gateway.token({ sub: `s${at}`, tenant: `tenant${at}` })),
  )
  await measure('2,000 tenants, a request each', async () => {
    for (let at = 0; at < tokens.length; at += 50)
      await Promise.all(tokens.slice(at, at + 50).map((one) => connect(gateway.port, one, 'a.test:443')))
  })
  await measure('metrics of many tenants', async () =>
    console.error(`metrics: ${(await get(gateway, '/metrics')).text.length} bytes`),
  )
}

function report(): void {
  const long = results.filter(({ gateway }) => gateway.turnCpuMs > MOST_MS)
  if (values.json !== undefined) fs.writeFileSync(values.json, `${JSON.stringify(results, null, 2)}\n`)
  for (const { what } of long) console.error(`more than ${MOST_MS} ms: ${what}`)
  if (long.length > 0) process.exitCode = 1
}

async function read(socket: string): Promise<LoopReading> {
  for (let tries = 0; ; tries++)
    try {
      const connection = net.connect(socket)
      const chunks = await connection.setEncoding('utf8').toArray()
      return JSON.parse(chunks.join('')) as LoopReading
    } catch (error) {
      if (tries === 100) throw error
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
}

async function startKeys(): Promise<http.Server> {
  const keys = Array.from({ length: 100 }, (_none, at) => {
    const { publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
    return { ...publicKey.export({ format: 'jwk' }), kid: `k${at}`, alg: 'ES256', use: 'sig' }
  })
  const server = http.createServer((request, response) => {
    if (request.url === '/many') response.end(JSON.stringify({ keys }))
  })
  server.listen(0, HOST)
  await once(server, 'listening')
  return server
}

async function startOrigin(): Promise<{ readonly port: number; readonly close: () => void }> {
  const origin = net.createServer((socket) => socket.on('error', () => socket.destroy()).resume())
  origin.listen(0, HOST, 16_384)
  await once(origin, 'listening')
  return { port: portOf(origin), close: () => void origin.close() }
}

function portOf(server: net.Server | http.Server): number {
  return (server.address() as net.AddressInfo).port
}

function head(target: string, token: string): string {
  return `CONNECT ${target} HTTP/1.1\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`
}

function connect(port: number, token: string, target: string): Promise<void> {
  return ask(port, head(target, token), GOOD_HOST)
}

/** Whatever the answer. */
function ask(port: number, text: string, localAddress = HOST): Promise<void> {
  return new Promise((resolve) => {
    const socket = net.connect({ port, host: HOST, localAddress })
    socket.on('error', () => socket.destroy()).on('close', () => resolve())
    socket.on('data', () => socket.end())
    socket.write(text)
  })
}

async function tunnel(port: number, target: string, token: string): Promise<net.Socket> {
  const socket = net.connect({ port, host: HOST, localAddress: GOOD_HOST })
  socket.on('error', () => socket.destroy())
  socket.write(head(target, token))
  const [answer] = (await once(socket, 'data')) as [Buffer]
  if (!answer.toString('latin1').startsWith('HTTP/1.1 200 ')) throw new Error(answer.toString('latin1').slice(0, 200))
  return socket.resume()
}

function get(gateway: BenchGateway, route: string) {
  return request(gateway, 'GET', route)
}

function postText(gateway: BenchGateway, text: string) {
  return request(gateway, 'PUT', '/v1/policies/bad', text)
}

async function request(gateway: BenchGateway, method: string, route: string, text?: string) {
  const asked = http.request({
    socketPath: path.join(gateway.folder, 'admin'),
    method,
    path: route,
    agent: false,
    headers: { 'content-type': 'application/json' },
  })
  asked.on('error', () => undefined).end(text)
  const [response] = (await once(asked, 'response')) as [http.IncomingMessage]
  return { status: response.statusCode, text: (await response.setEncoding('utf8').toArray()).join('') }
}
