/** A gateway of several processes for tests: real workers, an echo behind them, and a hand on each process. */
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { expect } from 'vitest'
import { parseVerifyKeys } from '../../../proxy/audit/key.ts'
import { type AuditVerification, verifyAudit } from '../../../proxy/audit/verify.ts'
import type { ConfigInput } from '../../../proxy/config/schema.ts'
import { AUDIT_PUBLIC_KEY_FILE } from '../../../proxy/state/audit-key.ts'
import { createSupervisedGateway, type SupervisedOptions } from '../../../proxy/workers/supervised-gateway.ts'
import { startTestGateway, type TestGateway } from '../../integration/test-gateway.ts'
import { WireClient } from '../../integration/wire.ts'
import type { Origin } from '../../origins/origins.ts'

/** Where the origins of these tests are. */
export const HOST = '127.66.0.9'
export const EGRESS = { egress: { kind: 'allow-all' } }

export interface Supervised extends TestGateway {
  /** Resolves with the error when a worker can't be replaced any more. */
  readonly failed: Promise<Error>
  /** Process ids by the number of the worker; those that are there. */
  pids(): ReadonlyMap<number, number>
  /** Asks the control API through its socket. */
  control(method: string, route: string, body?: object): Promise<{ readonly status: number; readonly body: Body }>
  text(route: string): Promise<string>
  /** Waits until so many serve, and so many were replaced. */
  serving(count: number, replaced?: number): Promise<void>
  /** Of the whole folder, with signatures. */
  verify(): Promise<AuditVerification>
}

export type Body = Readonly<Record<string, unknown>>

/** Of two workers, unless the document says otherwise. */
export async function startSupervised(
  document: ConfigInput = {},
  options: Omit<SupervisedOptions, 'config'> = {},
): Promise<Supervised> {
  let failed: Promise<Error> = new Promise(() => undefined)
  const socket = path.join(fs.mkdtempSync('/tmp/sallyport-w-'), 'admin')
  const gateway = await startTestGateway(
    {
      workers: 2,
      policy: { ceiling: { kind: 'allow-all' } },
      network: { allowPrivate: ['127.66.0.0/24'], hosts: { 'echo.example.test': HOST } },
      ...document,
      listen: { admin: `unix:${socket}`, ...document.listen },
    },
    {},
    async (given) => {
      const supervised = await createSupervisedGateway({ ...given, ...options })
      failed = supervised.failed
      return supervised.gateway
    },
  ).catch((error: unknown) => {
    fs.rmSync(path.dirname(socket), { recursive: true, force: true })
    throw error
  })
  const { audit } = gateway.config({})
  const control: Supervised['control'] = async (method, route, body) => {
    const { status, text } = await ask(socket, method, route, body)
    return { status, body: text === '' ? {} : (JSON.parse(text) as Body) }
  }
  return {
    ...gateway,
    failed,
    pids: () => workersOf(process.pid, path.dirname(audit.path)),
    control,
    text: async (route) => (await ask(socket, 'GET', route)).text,
    serving: (count, replaced = 0) =>
      expect
        .poll(async () => (await control('GET', '/v1/status')).body['workers'], { timeout: 60_000, interval: 50 })
        .toEqual({ configured: gateway.config({}).workers, serving: count, replaced }),
    verify: () => {
      const file = path.join(path.dirname(audit.path), AUDIT_PUBLIC_KEY_FILE)
      return verifyAudit({ paths: [audit.path], keys: parseVerifyKeys(fs.readFileSync(file, 'utf8'), file) })
    },
    close: async () => {
      await gateway.close()
      fs.rmSync(path.dirname(socket), { recursive: true, force: true })
    },
  }
}

/** The workers of a process, by number: a worker holds the lock of its own audit log, which says who it is. */
export function workersOf(parent: number, state: string): ReadonlyMap<number, number> {
  const folder = path.join(state, 'audit')
  const found = fs.readdirSync(folder).flatMap((name) => {
    const number = Number(/-(\d+)\.lock$/.exec(name)?.[1])
    if (!(number > 0)) return []
    const { pid } = JSON.parse(fs.readFileSync(path.join(folder, name), 'utf8')) as { pid: number }
    return parentOf(pid) === parent ? [[number, pid] as const] : []
  })
  return new Map(found)
}

function parentOf(pid: number): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)$/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1])
  } catch {
    return undefined
  }
}

/** Asks for a tunnel to an origin. */
export async function connect(port: number, token: string, origin: Pick<Origin, 'port'>): Promise<WireClient> {
  const client = await WireClient.connect({ port, host: '127.0.0.1' })
  client.send(
    `CONNECT echo.example.test:${origin.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`,
  )
  return client
}

/** What it was answered: `200`, or the status and the reason. */
export async function outcomeOf(client: WireClient): Promise<string> {
  const answer = await client.answer({ hasBody: false })
  if (answer === undefined) return 'nothing'
  return answer.status === 200 ? '200' : `${answer.status} ${answer.headers['x-deny-reason']?.join() ?? ''}`
}

/** A tunnel on each worker, proven by a byte through it: the system spreads connections, so it is tried until both have one. */
export async function tunnelOnEach(
  gateway: Supervised,
  token: string,
  origin: Pick<Origin, 'port'>,
): Promise<ReadonlyMap<number, WireClient>> {
  const found = new Map<number, WireClient>()
  for (let tries = 0; tries < 100 && found.size < 2; tries++) {
    const client = await connect(gateway.port, token, origin)
    const outcome = await outcomeOf(client)
    // The place of the one before may not be free everywhere yet.
    if (outcome === '429 tunnel_limit') await new Promise((resolve) => setTimeout(resolve, 100))
    if (outcome === '429 tunnel_limit') continue
    expect(outcome).toBe('200')
    client.send('x')
    expect((await client.take(1)).toString()).toBe('x')
    const number = workerOf(gateway, client)
    if (found.has(number)) client.destroy()
    else found.set(number, client)
  }
  return found
}

/** Which worker let a connection out: the decision is in its log before the client is answered. */
export function workerOf(gateway: TestGateway, client: WireClient): number {
  const { localPort } = client.socket
  const line = gateway.audit().find(({ kind, client: of }) => kind === 'decision' && of === `127.0.0.1:${localPort}`)
  return Number(/-(\d+)$/.exec(String(line?.['instance']))?.[1])
}

function ask(socketPath: string, method: string, route: string, body?: object) {
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const request = http.request(
      { socketPath, method, path: route, headers: { 'content-type': 'application/json' } },
      (response) => {
        let text = ''
        response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }))
      },
    )
    request.on('error', reject)
    request.end(body === undefined ? undefined : JSON.stringify(body))
  })
}
