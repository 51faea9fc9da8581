import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Egress, EgressLink } from '../../../provider/egress/egress.ts'
import { embeddedEgress, type EmbeddedGatewayOptions } from '../../../provider/egress/embedded.ts'
import type { EgressPolicy } from '../../../policies/index.ts'
import { Client, connectAnswer, startOrigin } from './client.ts'

let root: string
let origin: Awaited<ReturnType<typeof startOrigin>>
let egress: Egress

beforeEach(async () => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  origin = await startOrigin()
  egress = make()
})

afterEach(async () => {
  await egress.close()
  await origin.close()
  fs.rmSync(root, { recursive: true, force: true })
})

function make(config: EmbeddedGatewayOptions['config'] = {}): Egress {
  const network = { allowPrivate: ['127.0.0.0/8'], hosts: { 'a.example': ['127.0.0.1'], 'b.example': ['127.0.0.1'] } }
  return embeddedEgress(root, {
    config: { network, log: { level: 'silent' }, ...config },
    machineSets: { sets: { npm: [], apt: [] }, notes: [] },
  })
}

const socket = (name = 'g.sock'): string => path.join(root, name)
const open = (policy: EgressPolicy, name?: string, tenant?: string): Promise<EgressLink> =>
  egress.open({ sandbox: 'sbx_1', tenant, policy, socketPath: socket(name) })
const allow = (...hosts: string[]): EgressPolicy => ({
  kind: 'static',
  allowedHosts: hosts.map((host) => `${host}:${origin.port}`),
})
const ask = (host: string, name?: string): Promise<string> => connectAnswer(socket(name), `${host}:${origin.port}`)

describe('the gateway inside the process', () => {
  test('lets out what the policy of the sandbox allows, and nothing else', async () => {
    await open(allow('a.example'))
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
    expect(await ask('b.example')).toContain('x-deny-reason: host_not_allowed')
  })

  test('keeps the policies of sandboxes apart', async () => {
    await open(allow('a.example'), 'a.sock')
    await open(allow('b.example'), 'b.sock')
    expect(
      await Promise.all([
        ask('a.example', 'a.sock'),
        ask('b.example', 'a.sock'),
        ask('a.example', 'b.sock'),
        ask('b.example', 'b.sock'),
      ]),
    ).toEqual(
      ['200', '403', '403', '200'].map((status) => expect.stringMatching(new RegExp(`^HTTP/1.1 ${status}`)) as unknown),
    )
  })

  test('listens on no port at all', async () => {
    await open(allow('a.example'))
    await ask('a.example')
    // The origin's own server is in this process too.
    expect(process.getActiveResourcesInfo().filter((name) => name === 'TCPServerWrap')).toHaveLength(1)
  })

  test('may be connected to by whoever the sandbox runs as', async () => {
    await open(allow('a.example'))
    expect(fs.statSync(socket()).mode & 0o777).toBe(0o666)
  })

  test('another policy: the next connection obeys, and the open one that it does not allow is cut within a second', async () => {
    const link = await open(allow('a.example', 'b.example'))
    const [kept, cut] = ['a.example', 'b.example'].map((host) =>
      new Client(socket()).send(`CONNECT ${host}:${origin.port} HTTP/1.1\r\n\r\n`),
    )
    await Promise.all([kept?.until(/\r\n\r\n/), cut?.until(/\r\n\r\n/)])
    const startedMs = performance.now()
    await link.setPolicy(allow('a.example'))
    expect(await ask('b.example')).toMatch(/^HTTP\/1\.1 403/)
    await cut?.untilClosed()
    expect(performance.now() - startedMs).toBeLessThan(1000)
    kept?.send('POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello')
    await kept?.until(/hello/)
    kept?.socket.destroy()
  })

  test('a policy with faults changes nothing', async () => {
    const link = await open(allow('a.example'))
    await expect(link.setPolicy({ kind: 'static', allowedHosts: ['*.com'] })).rejects.toMatchObject({
      code: 'SALLYPORT_POLICY_INVALID',
    })
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
  })

  test('closing cuts what is open, refuses what comes, and is one thing however often', async () => {
    const link = await open(allow('a.example'))
    const client = new Client(socket()).send(`CONNECT a.example:${origin.port} HTTP/1.1\r\n\r\n`)
    await client.until(/\r\n\r\n/)
    await Promise.all([link.close(), link.close()])
    await client.untilClosed()
    await expect(ask('a.example')).rejects.toThrow('closed')
    // And it stays closed.
    await link.setPolicy(allow('a.example'))
    await expect(ask('a.example')).rejects.toThrow('closed')
  })

  test('the tenant’s layer of the configuration holds too', async () => {
    await egress.close()
    egress = make({ policy: { tenants: { acme: { kind: 'static', allowedHosts: [`b.example:${origin.port}`] } } } })
    await open(allow('a.example', 'b.example'), 'g.sock', 'acme')
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 403/)
    expect(await ask('b.example')).toMatch(/^HTTP\/1\.1 200/)
  })

  test('a ceiling of the configuration takes the place of the open one', async () => {
    await egress.close()
    egress = make({ policy: { ceiling: { kind: 'deny-all' } } })
    await open({ kind: 'allow-all' })
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 403/)
  })

  test('a configuration that can not be used is refused before anything starts', () => {
    expect(() => make({ limits: { tunnels: 0 } })).toThrow(
      expect.objectContaining({ code: 'SALLYPORT_CONFIG_INVALID' }) as Error,
    )
    expect(fs.readdirSync(root)).toEqual([])
  })
})

describe('a resolver', () => {
  test('is asked once before the sandbox has its way out, and its answer is what holds', async () => {
    let asked = 0
    await open({ kind: 'resolver', resolve: () => Promise.resolve(++asked === 1 ? [`a.example:${origin.port}`] : []) })
    expect(asked).toBe(1)
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
    expect(asked).toBe(1)
  })

  test('that throws leaves no socket', async () => {
    const fault = new Error('down')
    await expect(open({ kind: 'resolver', resolve: () => Promise.reject(fault) })).rejects.toBe(fault)
    expect(fs.existsSync(socket())).toBe(false)
  })

  test('that throws for another policy leaves the old one', async () => {
    const link = await open(allow('a.example'))
    await expect(
      link.setPolicy({ kind: 'resolver', resolve: () => Promise.reject(new Error('down')) }),
    ).rejects.toThrow('down')
    expect(await ask('a.example')).toMatch(/^HTTP\/1\.1 200/)
  })
})
