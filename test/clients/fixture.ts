/** A gateway, a real TLS origin and a real plain one on loopback, and clients started as processes of their own, with nothing of this machine's set-up. */
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import type net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { vi } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { type Authority, createAuthority } from '../origins/certificates.ts'
import { type Origin, startEcho } from '../origins/origins.ts'
import { PATIENCE_MS, runProgram, type Program, type ProgramResult } from './program.ts'

/** A host with a port for TLS and one for plain HTTP. */
export interface Target {
  readonly host: string
  readonly tlsPort: number
  readonly plainPort: number
}

/** What a client did, and what the gateway wrote down meanwhile. */
export interface Run extends ProgramResult {
  /** `allow` or the reason, of every line of the kinds `decision` and `auth`, in order. */
  readonly outcomes: readonly string[]
  /** How many connections to the gateway these lines are of. */
  readonly connections: number
  readonly dialects: readonly string[]
  /** These lines themselves. */
  readonly lines: readonly Readonly<Record<string, unknown>>[]
}

export interface Clients {
  readonly gateway: TestGateway
  readonly authority: Authority
  /** Of this fixture alone; the home folder of the clients too. */
  readonly folder: string
  /** PEM file of the authority behind the TLS origin, and behind the gateway where it speaks TLS. */
  readonly caFile: string
  /** `http://127.0.0.1:port` or `https://localhost:port`, without credentials. */
  readonly proxyUrl: string
  /** The same with a user and the token. */
  readonly loginUrl: string
  readonly token: string
  /** What the token allows. */
  readonly allowed: Target
  /** What it does not; a connection there fails `close()`. */
  readonly denied: Target
  readonly origins: { readonly tls: https.Server; readonly plain: http.Server }
  /** The variables that most clients read, with the token in them. */
  readonly proxyVariables: Readonly<Record<string, string>>
  /** A token that allows what `token` does and has at least `bytes` bytes. */
  longToken(bytes: number): Promise<string>
  /** Another token that allows the same, found in the audit by `id`. */
  namedToken(id: string): Promise<string>
  /** Runs a client in the environment of the fixture, with `program.env` laid over it. */
  run(program: Program): Promise<Run>
  /** Does the same for something that runs in this process. */
  during<T>(action: () => Promise<T>): Promise<T & Omit<Run, keyof ProgramResult>>
  close(): Promise<void>
}

export interface ClientsOptions {
  /** Answers requests in place of the greeting. */
  readonly onRequest?: http.RequestListener
  /** TLS between client and gateway. */
  readonly tlsToProxy?: boolean
  /** Laid over the gateway's configuration. */
  readonly config?: ConfigInput
}

/** Virtual machines and browsers start slowly on a busy machine. */
vi.setConfig({ testTimeout: PATIENCE_MS + 10_000 })

export const USER = 'sandbox'
const ALLOWED_ADDRESS = '127.66.0.1'
const DENIED_ADDRESS = '127.66.0.2'
const ROOT = path.resolve(import.meta.dirname, '../..')

/** What the origins answer, so that no test takes one for the other. */
export const GREETING = { tls: 'hello over TLS', plain: 'hello in the clear' } as const

export async function startClients(options: ClientsOptions = {}): Promise<Clients> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-clients-'))
  const authority = createAuthority()
  const caFile = path.join(folder, 'ca.pem')
  fs.writeFileSync(caFile, authority.cert)
  const leaf = authority.issue('api.example.test', { addresses: [ALLOWED_ADDRESS] })

  const answer = (greeting: string): http.RequestListener =>
    options.onRequest ??
    ((request, response) => {
      request.resume().on('end', () => response.end(`${greeting}\n`))
    })
  const origins = {
    tls: https.createServer(leaf, answer(GREETING.tls)),
    plain: http.createServer(answer(GREETING.plain)),
  }
  const [tlsPort, plainPort] = [await listen(origins.tls), await listen(origins.plain)]
  const forbidden = await startEcho(DENIED_ADDRESS)

  const allowed = { host: 'api.example.test', tlsPort, plainPort }
  const denied = { host: 'denied.example.test', tlsPort: forbidden.port, plainPort: forbidden.port }
  const gateway = await startTestGateway({
    ...options.config,
    policy: { ceiling: { kind: 'allow-all' } },
    network: {
      allowPrivate: ['127.66.0.0/24'],
      hosts: { [allowed.host]: ALLOWED_ADDRESS, [denied.host]: DENIED_ADDRESS },
      ...options.config?.network,
    },
    sni: { ports: [443, tlsPort] },
    limits: { perSandbox: { newPerSecond: 100_000 } },
    ...(options.tlsToProxy && { listen: { tls: writeCertificate(folder, authority) } }),
  })
  const allowedHosts = [allowed.host, ALLOWED_ADDRESS].flatMap((host) => [`${host}:${tlsPort}`, `${host}:${plainPort}`])
  const egress = { kind: 'static', allowedHosts }
  const token = await gateway.token({ egress })
  const proxyUrl = options.tlsToProxy ? `https://localhost:${gateway.port}` : `http://127.0.0.1:${gateway.port}`
  const loginUrl = proxyUrl.replace('://', `://${USER}:${token}@`)
  const environment = { ...clientEnvironment(folder, caFile), SALLYPORT_PROXY: proxyUrl, SALLYPORT_TOKEN: token }

  const during = async <T>(action: () => Promise<T>) => {
    const before = gateway.audit().length
    const result = await action()
    const lines = gateway
      .audit()
      .slice(before)
      .filter(({ kind }) => kind === 'decision' || kind === 'auth')
    return {
      ...result,
      outcomes: lines.map((line) => String(line['reason'] ?? line['effective'])),
      connections: new Set(lines.map((line) => line['client'])).size,
      dialects: lines.map((line) => String(line['dialect'])),
      lines,
    }
  }

  return {
    gateway,
    authority,
    folder,
    caFile,
    proxyUrl,
    loginUrl,
    token,
    allowed,
    denied,
    origins,
    during,
    proxyVariables: {
      http_proxy: loginUrl,
      HTTP_PROXY: loginUrl,
      https_proxy: loginUrl,
      HTTPS_PROXY: loginUrl,
      NODE_USE_ENV_PROXY: '1',
    },
    longToken: (bytes) =>
      gateway.token({
        egress,
        padding: crypto
          .randomBytes(Math.ceil(bytes / 2))
          .toString('hex')
          .slice(0, Math.ceil((bytes * 3) / 4)),
      }),
    namedToken: (id) => gateway.token({ egress, jti: id }),
    run: (program) =>
      during(() => runProgram({ ...program, cwd: program.cwd ?? ROOT, env: { ...environment, ...program.env } })),
    close: async () => {
      await gateway.close()
      await Promise.all([closeServer(origins.tls), closeServer(origins.plain), forbidden.close()])
      fs.rmSync(folder, { recursive: true, force: true })
      expectUntouched(forbidden)
    },
  }
}

/** `url` of a target, for one of the two origins. */
export function urlOf(target: Target, scheme: 'https' | 'http' | 'wss' | 'ws'): string {
  return `${scheme}://${target.host}:${scheme === 'https' || scheme === 'wss' ? target.tlsPort : target.plainPort}/`
}

/** No variable of this machine but where programs lie, and every client's own way to be told of an authority. */
function clientEnvironment(home: string, caFile: string): Record<string, string> {
  fs.writeFileSync(path.join(home, '.wgetrc'), `ca_certificate = ${caFile}\n`)
  const { PATH = '', JAVA_HOME } = process.env
  return {
    PATH: `${path.join(ROOT, 'node_modules/.bin')}:${PATH}`,
    ...(JAVA_HOME !== undefined && { JAVA_HOME }),
    HOME: home,
    LANG: 'C.UTF-8',
    CURL_CA_BUNDLE: caFile,
    SSL_CERT_FILE: caFile,
    REQUESTS_CA_BUNDLE: caFile,
    NODE_EXTRA_CA_CERTS: caFile,
    GIT_SSL_CAINFO: caFile,
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_TERMINAL_PROMPT: '0',
  }
}

function writeCertificate(folder: string, authority: Authority): { cert: string; key: string } {
  const { cert, key } = authority.issue('localhost', { addresses: ['127.0.0.1'] })
  const files = { cert: path.join(folder, 'gateway.pem'), key: path.join(folder, 'gateway.key') }
  fs.writeFileSync(files.cert, cert)
  fs.writeFileSync(files.key, key, { mode: 0o600 })
  return files
}

async function listen(server: http.Server | https.Server): Promise<number> {
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, ALLOWED_ADDRESS, resolve))
  return (server.address() as net.AddressInfo).port
}

async function closeServer(server: http.Server | https.Server): Promise<void> {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
}

function expectUntouched(origin: Origin): void {
  if (origin.seen.connections > 0) throw new Error('a host that no token allows was connected to')
}
