/** A worker that carries requests to a gateway elsewhere: commands inside get out by it, and never have its token. */
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { freePort } from '../../origins/free-port.ts'
import { type ReachableGateway, startReachableGateway } from '../../../provider/conformance/reachable-gateway.ts'
import type { Egress, EgressGrant } from '../../../provider/egress/egress.ts'
import { remoteEgress } from '../../../provider/egress/remote.ts'
import { startOrigin } from '../egress/client.ts'
import { type StartedWorker, startWorker } from './start-worker.ts'

let folder: string
let gateway: ReachableGateway
let origin: Awaited<ReturnType<typeof startOrigin>>
let egress: Egress
let grant: EgressGrant
let worker: StartedWorker | undefined
let port: number

beforeEach(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  origin = await startOrigin()
  gateway = await startReachableGateway('127.0.0.1', {
    config: { network: { allowPrivate: ['127.0.0.0/8'], hosts: { 'a.example': ['127.0.0.1'] } }, log: { level: 'silent' } }, // prettier-ignore
    machineSets: { sets: { npm: [], apt: [] }, notes: [] },
    parentFolder: folder,
  })
  egress = remoteEgress(gateway.remote)
  grant = await egress.grant!({
    credential: 'token',
    sandbox: 'sbx_1',
    tenant: undefined,
    policy: { kind: 'static', allowedHosts: [`a.example:${origin.port}`] },
  })
  port = await freePort()
})
afterEach(async () => {
  await worker?.[Symbol.asyncDispose]()
  worker = undefined
  await grant.close()
  await egress.close()
  await gateway.close()
  await origin.close()
  fs.rmSync(folder, { recursive: true, force: true })
})

const start = async (token?: string): Promise<StartedWorker> =>
  (worker = await startWorker({
    gateway: { host: '127.0.0.1', port, url: gateway.remote.url, ...(token !== undefined && { token }) },
  }))

/** Head of the answer, and the connection. */
async function connect(): Promise<{ head: string; socket: net.Socket }> {
  const socket = net.connect(port, '127.0.0.1')
  socket.on('error', () => undefined)
  socket.write(`CONNECT a.example:${origin.port} HTTP/1.1\r\nHost: a\r\n\r\n`)
  const head = await new Promise<string>((resolve) => socket.once('data', (data) => resolve(data.toString('latin1'))))
  return { head, socket }
}
const status = async (): Promise<string | undefined> => {
  const { head, socket } = await connect()
  socket.destroy()
  return /^HTTP\/1\.[01] (\d+)/.exec(head)?.[1]
}

describe('a worker with a way to a gateway elsewhere', () => {
  test('lets nothing out before it has a token, and then what the policy says', async () => {
    const { client } = await start()
    const { head, socket } = await connect()
    socket.destroy()
    expect(head).toMatch(/^HTTP\/1\.1 503[^]*x-deny-reason: policy_unavailable/)
    await client.configure({ gatewayToken: await grant.token() })
    expect(await status()).toBe('200')
  })

  test('a further token leaves open tunnels alone, unless they are to end', async () => {
    const { client } = await start(await grant.token())
    const { head, socket } = await connect()
    expect(head).toMatch(/^HTTP\/1\.[01] 200/)
    let isClosed = false
    const closed = new Promise<void>((resolve) =>
      socket.once('close', () => {
        isClosed = true
        resolve()
      }),
    )
    await client.configure({ gatewayToken: await grant.token() })
    socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
    await new Promise((resolve) => socket.once('data', resolve))
    expect(isClosed).toBe(false)
    await client.configure({ gatewayToken: await grant.token(), cutTunnels: true })
    await closed
  })

  test('no command has the token: not in its environment, nor in the command line or the environment of the worker', async () => {
    const token = await grant.token()
    const { client, pid } = await start(token)
    const { stdout } = await client.execute({ command: `env; cat /proc/${pid}/cmdline /proc/${pid}/environ` })
    expect(stdout).toContain('PATH=')
    expect(stdout).not.toContain(token)
    expect(stdout).not.toContain('eyJ')
  })

  test('a token that could split a request is refused, and not repeated', async () => {
    const { client } = await start()
    const evil = 'x\r\nProxy-Authorization: Bearer y'
    const refusal: unknown = await client.configure({ gatewayToken: evil }).catch((error: unknown) => error)
    expect(refusal).toMatchObject({ code: 'SALLYPORT_SANDBOX_BACKEND_FAILED' })
    expect(String(refusal)).not.toContain('Proxy-Authorization')
    for (const bad of ['', 'ä', 'x'.repeat(16 * 1024 + 1), 7 as unknown as string])
      await expect(client.configure({ gatewayToken: bad })).rejects.toThrow('visible ASCII')
    expect(await status()).toBe('503')
  })

  test('one without such a way takes no token', async () => {
    worker = await startWorker()
    await expect(worker.client.configure({ gatewayToken: 'abc' })).rejects.toThrow('carries nothing to a gateway')
  })

  test.each([{ url: 'ftp://a' }, { url: 'nonsense' }, { url: 'http://a', token: 'a b' }, {}])(
    'settings that name no gateway stop the start: %o',
    async (wrong) => {
      await expect(startWorker({ gateway: { host: '127.0.0.1', port, ...wrong } as never })).rejects.toThrow(
        'did not start',
      )
    },
  )
})
