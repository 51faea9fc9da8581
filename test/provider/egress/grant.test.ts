/** The way out of a sandbox elsewhere: its tokens, as whoever holds them sees it at a real gateway. */
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { EgressPolicy } from '../../../policies/index.ts'
import { type ReachableGateway, startReachableGateway } from '../../../provider/conformance/reachable-gateway.ts'
import type { Egress, EgressGrant } from '../../../provider/egress/egress.ts'
import { remoteEgress } from '../../../provider/egress/remote.ts'
import { startOrigin } from './client.ts'

let folder: string
let gateway: ReachableGateway
let origin: Awaited<ReturnType<typeof startOrigin>>
let egress: Egress
let grant: EgressGrant | undefined

beforeEach(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  origin = await startOrigin()
  gateway = await startReachableGateway('127.0.0.1', {
    config: {
      network: { allowPrivate: ['127.0.0.0/8'], hosts: { 'a.example': ['127.0.0.1'], 'b.example': ['127.0.0.1'] } },
      log: { level: 'silent' },
    },
    machineSets: { sets: { npm: [], apt: [] }, notes: [] },
    parentFolder: folder,
  })
  egress = remoteEgress(gateway.remote)
})
afterEach(async () => {
  vi.useRealTimers()
  await grant?.close().catch(() => undefined)
  grant = undefined
  await egress.close()
  await gateway.close()
  await origin.close()
  fs.rmSync(folder, { recursive: true, force: true })
})

const allow = (...hosts: string[]): EgressPolicy => ({
  kind: 'static',
  allowedHosts: hosts.map((host) => `${host}:${origin.port}`),
})
const open = async (policy: EgressPolicy, from = egress): Promise<EgressGrant> =>
  (grant = await from.grant!({ sandbox: 'sbx_1', tenant: undefined, policy, credential: 'token' }))

/** A tunnel under a token: its status and reason, and the connection. */
async function tunnel(token: string, host: string): Promise<{ status: string; socket: net.Socket }> {
  const { hostname, port } = new URL(gateway.remote.url)
  const socket = net.connect({ host: hostname, port: Number(port) })
  socket.on('error', () => undefined)
  socket.write(`CONNECT ${host}:${origin.port} HTTP/1.1\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  const head = await new Promise<string>((resolve) => socket.once('data', (data) => resolve(data.toString('latin1'))))
  const status = /^HTTP\/1\.1 (\d+)/.exec(head)?.[1] ?? head
  const reason = /x-deny-reason: (\S+)/.exec(head)?.[1]
  return { status: reason === undefined ? status : `${status} ${reason}`, socket }
}
const answer = async (token: string, host: string): Promise<string> => {
  const { status, socket } = await tunnel(token, host)
  socket.destroy()
  return status
}

describe('a grant', () => {
  test('names the gateway without credentials, and its token lets out what the policy says', async () => {
    const { gateway: url, token } = await open(allow('a.example'))
    expect(url.href).toBe(`${gateway.remote.url}/`)
    expect([await answer(await token(), 'a.example'), await answer(await token(), 'b.example')]).toEqual([
      '200',
      '403 host_not_allowed',
    ])
  })

  test('gives the present token at once, and each further one before the old one ends', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] })
    const own = await open(allow('a.example'))
    const taken: [string, string][] = []
    await own.begin((token, why) => Promise.resolve(void taken.push([token, why])))
    expect(taken).toEqual([[await own.token(), 'renewal']])
    await vi.advanceTimersByTimeAsync(240_000)
    expect(taken).toHaveLength(1)
    await vi.advanceTimersByTimeAsync(120_000)
    await vi.waitFor(() => expect(taken).toHaveLength(2))
    expect(taken[1]?.[0]).not.toBe(taken[0]?.[0])
    expect(taken[1]?.[1]).toBe('renewal')
  })

  test('tries again when a further token could not be given', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] })
    const own = await open(allow('a.example'))
    const taken: string[] = []
    await own.begin((token) => {
      taken.push(token)
      return taken.length === 2 ? Promise.reject(new Error('unreachable')) : Promise.resolve()
    })
    // Signing takes real time.
    await vi.waitFor(
      async () => {
        await vi.advanceTimersByTimeAsync(5_000)
        expect(taken).toHaveLength(3)
      },
      { timeout: 20_000 },
    )
    expect(taken[2]).toBe(taken[1])
    expect(taken[1]).not.toBe(taken[0])
  })

  test('another policy is given as such; the former token is dead, and what it has open is cut', async () => {
    const own = await open(allow('a.example'))
    const taken: [string, string][] = []
    await own.begin((token, why) => Promise.resolve(void taken.push([token, why])))
    const former = await own.token()
    const { socket } = await tunnel(former, 'a.example')
    const cut = new Promise((resolve) => socket.once('close', resolve))
    await own.setPolicy(allow('b.example'))
    await cut
    expect(taken.map(([, why]) => why)).toEqual(['renewal', 'policy'])
    const present = await own.token()
    expect(taken[1]?.[0]).toBe(present)
    expect(await answer(former, 'a.example')).toBe('407 token_revoked')
    expect([await answer(present, 'a.example'), await answer(present, 'b.example')]).toEqual([
      '403 host_not_allowed',
      '200',
    ])
  })

  test('a policy that could not be given stays one that cuts, until it is', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] })
    const own = await open(allow('a.example'))
    const taken: string[] = []
    let fails = false
    await own.begin((_token, why) => {
      taken.push(why)
      return fails ? Promise.reject(new Error('unreachable')) : Promise.resolve()
    })
    fails = true
    const former = await own.token()
    await expect(own.setPolicy(allow('b.example'))).rejects.toThrow('unreachable')
    expect(await answer(former, 'a.example')).toBe('407 token_revoked')
    fails = false
    await vi.advanceTimersByTimeAsync(30_000)
    await vi.waitFor(() => expect(taken).toEqual(['renewal', 'policy', 'policy']))
  })

  test('a policy that can not be read changes nothing', async () => {
    const own = await open(allow('a.example'))
    const token = await own.token()
    await expect(own.setPolicy({ kind: 'static', allowedHosts: ['*'] })).rejects.toMatchObject({
      code: 'SALLYPORT_POLICY_INVALID',
    })
    expect(await own.token()).toBe(token)
    expect(await answer(token, 'a.example')).toBe('200')
  })

  test('closing kills all of its tokens, cuts what is open, and gives no more', async () => {
    const own = await open(allow('a.example'))
    const token = await own.token()
    const { socket } = await tunnel(token, 'a.example')
    const cut = new Promise((resolve) => socket.once('close', resolve))
    await Promise.all([own.close(), own.close()])
    await cut
    expect(await answer(token, 'a.example')).toBe('407 token_revoked')
    let given = false
    await own.setPolicy(allow('b.example'))
    await own.begin(() => Promise.resolve(void (given = true)))
    expect(given).toBe(false)
  })

  test('a revocation that fails makes closing fail, and the next call tries again', async () => {
    const own = await open(
      allow('a.example'),
      remoteEgress({ ...gateway.remote, control: { admin: 'unix:/nowhere/admin.sock' } }),
    )
    await expect(own.close()).rejects.toMatchObject({ code: 'SALLYPORT_GATEWAY_UNREACHABLE' })
    await expect(own.close()).rejects.toMatchObject({ code: 'SALLYPORT_GATEWAY_UNREACHABLE' })
  })

  test('what a dead process left is taken back by the sandbox’s name', async () => {
    const token = await (await open(allow('a.example'))).token()
    await egress.revoke!('sbx_1')
    expect(await answer(token, 'a.example')).toBe('407 token_revoked')
  })
})
