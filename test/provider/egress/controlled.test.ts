/** The way out through a gateway in another process, by its control API; here the gateway is in this process, and all else is as it will be. */
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { EgressPolicy } from '../../../policies/index.ts'
import { type ControlledGateway, controlledEgress } from '../../../provider/egress/controlled.ts'
import type { Egress, EgressLink } from '../../../provider/egress/egress.ts'
import { type ControlClient, startControl } from '../../proxy/admin/control-client.ts'
import { Client, connectAnswer, startOrigin } from './client.ts'

let root: string
let origin: Awaited<ReturnType<typeof startOrigin>>
let control: ControlClient
const undo: (() => unknown)[] = []

beforeEach(async () => {
  root = fs.mkdtempSync('/tmp/sp-')
  origin = await startOrigin()
  control = await startControl(document())
})
afterEach(async () => {
  for (const step of undo.splice(0).toReversed()) await step()
  await control.gateway.close()
  await origin.close()
  fs.rmSync(root, { recursive: true, force: true })
})

function document() {
  return {
    policy: { ceiling: { kind: 'allow-all' as const } },
    network: { allowPrivate: ['127.0.0.0/8'], hosts: { 'a.example': ['127.0.0.1'], 'b.example': ['127.0.0.1'] } },
    admin: { bind: { folders: [root], addresses: ['127.0.0.1'] } },
  }
}

async function make(more: Partial<ControlledGateway> = {}): Promise<Egress> {
  const token = await control.adminToken(['token'], { name: 'host-7' })
  const egress = controlledEgress({ admin: control.url(''), ...(more.tokenFile === undefined && { token }), ...more })
  undo.push(() => egress.close())
  return egress
}

async function open(policy: EgressPolicy, more: Partial<ControlledGateway> = {}): Promise<EgressLink> {
  const link = await (await make(more)).open({ sandbox: 'sbx_1', tenant: undefined, policy, socketPath: socket() })
  undo.push(() => link.close().catch(() => undefined))
  return link
}

const socket = (): string => path.join(root, 'g.sock')
const ask = (host: string): Promise<string> => connectAnswer(socket(), `${host}:${origin.port}`)
const allow = (...hosts: string[]): EgressPolicy => ({
  kind: 'static',
  allowedHosts: hosts.map((host) => `${host}:${origin.port}`),
})
const listeners = async (): Promise<readonly { id: string }[]> =>
  (await control.call('GET', '/v1/listeners')).body['listeners'] as { id: string }[]

describe.each([
  ['at the socket of the sandbox', {}],
  ['on a port that this process carries it to', { bind: { host: '127.0.0.1' } }],
] as const)('%s', (_where, where) => {
  test('what the policy allows is let out, a change obeyed at once, and after closing nothing gets out', async () => {
    const link = await open(allow('a.example', 'b.example'), where)
    expect(fs.statSync(socket()).mode & 0o777).toBe(0o666)
    const cut = new Client(socket()).send(`CONNECT b.example:${origin.port} HTTP/1.1\r\n\r\n`)
    expect(await cut.until(/\r\n\r\n/)).toMatch(/^HTTP\/1\.1 200/)
    await link.setPolicy(allow('a.example'))
    await cut.untilClosed()
    expect(await ask('b.example')).toContain('x-deny-reason: host_not_allowed')
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
    await expect(link.setPolicy({ kind: 'static', allowedHosts: ['*.com'] })).rejects.toMatchObject({
      code: 'SALLYPORT_POLICY_INVALID',
    })
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
    const last = new Client(socket()).send(`CONNECT a.example:${origin.port} HTTP/1.1\r\n\r\n`)
    await last.until(/\r\n\r\n/)
    await Promise.all([link.close(), link.close()])
    await last.untilClosed()
    expect([fs.existsSync(socket()), await listeners()]).toEqual([false, []])
    await link.setPolicy(allow('a.example'))
    await expect(ask('a.example')).rejects.toThrow('closed')
    const authors = control.gateway
      .audit()
      .filter(({ action }) => String(action).startsWith('listener_'))
      .map(({ author }) => author)
    expect(new Set(authors)).toEqual(new Set(['host-7']))
  })

  test('its lease is renewed', { timeout: 30_000 }, async () => {
    // Long enough that a busy machine renews in time, and waited for twice.
    const link = await open(allow('a.example'), { ...where, leaseSeconds: 4 })
    const [first] = await listeners()
    await new Promise((resolve) => setTimeout(resolve, 9_000))
    expect(await listeners()).toMatchObject([{ id: first?.id }])
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
    await link.close()
  })

  test('a gateway that was restarted gets its listeners again', async () => {
    await open(allow('a.example'), { ...where, leaseSeconds: 1 })
    const [first] = await listeners()
    // As one that was restarted: it knows nothing of the listener.
    await control.call('DELETE', `/v1/listeners/${first?.id ?? ''}`)
    await expect.poll(async () => (await listeners()).length, { timeout: 10_000 }).toBe(1)
    await expect.poll(() => ask('a.example').catch(() => ''), { timeout: 5_000 }).toMatch(/^HTTP\/1\.1 200/)
  })
})

test('what a killed process left at the socket is taken over', async () => {
  const former = await control.call('POST', '/v1/listeners', {
    sandbox: 'sbx_1',
    address: { path: socket() },
    ttlSeconds: 60,
  })
  expect(former.status).toBe(201)
  await open(allow('a.example'))
  expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
  expect(await listeners()).toHaveLength(1)
})

test('but not what stands for another sandbox', async () => {
  await control.call('POST', '/v1/listeners', { sandbox: 'sbx_other', address: { path: socket() }, ttlSeconds: 60 })
  await expect(open(allow('a.example'))).rejects.toMatchObject({ code: 'SALLYPORT_GATEWAY_REFUSED' })
  expect(await listeners()).toHaveLength(1)
})

test('a resolver is asked first, and one that throws leaves nothing', async () => {
  await open({ kind: 'resolver', resolve: () => Promise.resolve([`a.example:${origin.port}`]) })
  expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
  const ids = async (): Promise<readonly string[]> => (await listeners()).map(({ id }) => id)
  const before = await ids()
  const fault = new Error('down')
  await expect(
    (await make()).open({
      sandbox: 's',
      tenant: undefined,
      policy: { kind: 'resolver', resolve: () => Promise.reject(fault) },
      socketPath: path.join(root, 'x.sock'),
    }),
  ).rejects.toBe(fault)
  expect(await ids()).toEqual(before)
})

test('a token in a file is read for every request', async () => {
  const tokenFile = path.join(root, 'token')
  fs.writeFileSync(tokenFile, 'nonsense\n')
  const egress = await make({ tokenFile })
  const request = { sandbox: 's', tenant: undefined, policy: allow('a.example'), socketPath: socket() }
  await expect(egress.open(request)).rejects.toMatchObject({
    code: 'SALLYPORT_GATEWAY_REFUSED',
    message: expect.not.stringContaining('nonsense') as string,
  })
  fs.writeFileSync(tokenFile, `${await control.adminToken(['token'])}\n`)
  const link = await egress.open(request)
  await link.close()
})

test('too little scope, nobody there, and somebody who is no gateway are named faults that leave no socket', async () => {
  const attempt = async (more: Partial<ControlledGateway>) => {
    const egress = controlledEgress({ admin: control.url(''), ...more })
    const failure = await egress
      .open({ sandbox: 's', tenant: undefined, policy: allow('a.example'), socketPath: socket() })
      .catch((error: unknown) => error)
    await egress.close()
    expect(fs.existsSync(socket())).toBe(false)
    return (failure as { code?: string }).code
  }
  expect(await attempt({ token: await control.adminToken(['read']) })).toBe('SALLYPORT_GATEWAY_REFUSED')
  expect(await attempt({ token: await control.gateway.token({ egress: { kind: 'allow-all' } }) })).toBe(
    'SALLYPORT_GATEWAY_REFUSED',
  )
  expect(await attempt({ admin: `unix:${root}/nobody.sock` })).toBe('SALLYPORT_GATEWAY_UNREACHABLE')
  expect(await attempt({ admin: `http://127.0.0.1:${origin.port}` })).toMatch(/^SALLYPORT_GATEWAY/)
  const silent = net.createServer((peer) => peer.end('HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n<>'))
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
  const { port } = silent.address() as net.AddressInfo
  expect(await attempt({ admin: `http://127.0.0.1:${port}` })).toBe('SALLYPORT_GATEWAY_UNREACHABLE')
  silent.close()
  for (const wrong of [
    { admin: 'ftp://x' },
    { admin: 'http://a:b@127.0.0.1' },
    { admin: 'unix:relative' },
    { token: 'a', tokenFile: 'b' },
    { leaseSeconds: 0 },
  ])
    expect(() => controlledEgress({ admin: 'http://127.0.0.1:1', ...wrong })).toThrow(TypeError)
})

test('closing after the gateway ended is no fault', async () => {
  const link = await open(allow('a.example'))
  await control.gateway.gateway.close()
  await link.close()
  expect(fs.existsSync(socket())).toBe(false)
})
