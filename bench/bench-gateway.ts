/** A gateway in a process of its own, on one core, for the benches that watch it from outside. Everything that it makes is below one folder. */
import { spawn } from 'node:child_process'
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { SignJWT } from 'jose'
import { stringify } from 'yaml'
import { freePort } from '../test/origins/free-port.ts'
import type { ConfigInput } from '../proxy/index.ts'

const ROOT = path.resolve(import.meta.dirname, '..')
const ISSUER = 'https://bench.example.test'
/** Five thousand tunnels are ten thousand sockets, here and there: as many as the machine permits. */
const ALL_DESCRIPTORS = 'ulimit -Sn hard'

/** A running gateway. */
export interface BenchGateway {
  readonly port: number
  readonly folder: string
  readonly pid: number
  /** A signed token; one for each sandbox. */
  token(claims: Readonly<Record<string, unknown>>): Promise<string>
  /** Asks the control API through its socket; throws for any answer but 2xx. */
  control(method: string, route: string, body?: object): Promise<unknown>
  /** As SIGTERM does it: the audit log is closed in order. */
  stop(): Promise<void>
}

/** Lets one identity have tens of thousands of tunnels to loopback. */
export const FOR_MANY_TUNNELS: ConfigInput = {
  policy: { ceiling: { kind: 'allow-all' } },
  network: { allowPrivate: ['127.0.0.0/8'] },
  limits: { tunnels: 50_000, perSandbox: { tunnels: 50_000, newPerSecond: 100_000 } },
}

/** An origin that takes everything and says nothing, on a port of its own. */
export async function startSilentOrigin(host: string): Promise<net.Server> {
  const origin = net.createServer((socket) => socket.on('error', () => socket.destroy()).resume())
  origin.listen(0, host, 16_384)
  await once(origin, 'listening')
  return origin
}

/**
 * `core` is the one that the gateway may use; `program` runs it, and is told its configuration file and then `args`. The caller removes `folder`.
 * `BENCH_PROFILE` names a folder for a profile of it.
 */
export async function startBenchGateway(
  core: number,
  document: ConfigInput,
  { program = 'bench/gateway.ts', args = [] }: { readonly program?: string; readonly args?: readonly string[] } = {},
): Promise<BenchGateway> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-bench-'))
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const jwk = { ...publicKey.export({ format: 'jwk' }), kid: 'bench', alg: 'ES256', use: 'sig' }
  fs.writeFileSync(path.join(folder, 'jwks.json'), JSON.stringify({ keys: [jwk] }))
  const port = await freePort()
  const socket = path.join(folder, 'admin')
  fs.writeFileSync(
    path.join(folder, 'sallyport.yaml'),
    stringify({
      log: { level: 'warn' },
      state: './state',
      ...document,
      issuers: [{ issuer: ISSUER, algorithms: ['ES256'], jwks: './jwks.json' }, ...(document.issuers ?? [])],
      listen: { proxy: `127.0.0.1:${port}`, admin: `unix:${socket}` },
    }),
  )
  const command = `${ALL_DESCRIPTORS} && exec taskset -c ${core} "$0" "$@"`
  const profileFolder = process.env['BENCH_PROFILE']
  const profile = profileFolder === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${path.resolve(profileFolder)}`]
  const child = spawn(
    'bash',
    [
      '-c',
      command,
      process.execPath,
      ...profile,
      path.join(ROOT, program),
      path.join(folder, 'sallyport.yaml'),
      ...args,
    ],
    { stdio: ['ignore', 'inherit', 'inherit'] },
  )
  const { pid } = child
  if (pid === undefined) throw new Error('the gateway did not start')
  const exited = once(child, 'exit')
  await Promise.race([
    reachable(port),
    exited.then(([code]) => Promise.reject(new Error(`the gateway ended with ${String(code)}`))),
  ])
  return {
    port,
    folder,
    pid,
    token: (claims) => {
      const now = Math.floor(Date.now() / 1000)
      const common = { iss: ISSUER, aud: 'sallyport', iat: now - 1, exp: now + 7200, jti: crypto.randomUUID() }
      return new SignJWT({ ...common, egress: { kind: 'allow-all' }, ...claims })
        .setProtectedHeader({ alg: 'ES256', kid: 'bench', typ: 'egress+jwt' })
        .sign(privateKey)
    },
    control: (method, route, body) => call(socket, method, route, body),
    stop: async () => {
      child.kill('SIGTERM')
      await exited
    },
  }
}

/** Resident bytes of a process. */
export function residentBytes(pid: number): number {
  const status = fs.readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024
}

/** Seconds of processor time of a process. */
export function processorSeconds(pid: number): number {
  const fields = fs
    .readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /s, '')
    .split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}

/** Runs `main` in this program started again: with as many descriptors as may be had, and beside the core of the gateway where there is another. */
export async function runBeside(core: number, main: () => Promise<void>): Promise<void> {
  if (process.env['BENCH_BESIDE'] !== undefined) return main()
  const others = os.cpus().flatMap((_cpu, index) => (index === core ? [] : [index]))
  const command = `${ALL_DESCRIPTORS} && exec taskset -c ${others.length === 0 ? core : others.join()} "$0" "$@"`
  const child = spawn('bash', ['-c', command, process.execPath, ...process.argv.slice(1)], {
    stdio: 'inherit',
    env: { ...process.env, BENCH_BESIDE: String(core) },
  })
  const [code] = (await once(child, 'exit')) as [number | null]
  process.exitCode = code ?? 1
}

/** Waits where it is told that it asks too often. */
async function call(socketPath: string, method: string, route: string, body?: object): Promise<unknown> {
  const headers = body === undefined ? {} : { 'content-type': 'application/json' }
  const request = http.request({ socketPath, method, path: route, headers, agent: false })
  request.end(body === undefined ? undefined : JSON.stringify(body))
  const [response] = (await once(request, 'response')) as [http.IncomingMessage]
  const text = (await response.setEncoding('utf8').toArray()).join('')
  if (response.statusCode === 429) {
    await new Promise((resolve) => setTimeout(resolve, Number(response.headers['retry-after']) * 1000))
    return call(socketPath, method, route, body)
  }
  if (response.statusCode === undefined || response.statusCode >= 300)
    throw new Error(`${method} ${route}: ${response.statusCode ?? 0} ${text}`)
  return text === '' ? undefined : JSON.parse(text)
}

/** @throws Error when nothing listens on the port of 127.0.0.1 within a minute */
export async function reachable(port: number): Promise<void> {
  for (let tries = 0; tries < 1200; tries += 1) {
    const socket = net.connect(port, '127.0.0.1')
    const isOpen = await new Promise((resolve) => {
      socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    })
    socket.destroy()
    if (isOpen === true) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error('the gateway does not listen')
}
