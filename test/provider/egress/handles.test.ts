/** Handles of a sandbox elsewhere: made by the control API of a real gateway, given on before they end, dead when they should be. */
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { EgressPolicy } from '../../../policies/index.ts'
import { type ReachableGateway, startReachableGateway } from '../../../provider/conformance/reachable-gateway.ts'
import type { Egress, EgressGrant } from '../../../provider/egress/egress.ts'
import { remoteEgress } from '../../../provider/egress/remote.ts'

let folder: string
let gateway: ReachableGateway
let egress: Egress
let grant: EgressGrant | undefined

beforeEach(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  gateway = await startReachableGateway('127.0.0.1', {
    config: { log: { level: 'silent' } },
    machineSets: { sets: { npm: [], apt: [] }, notes: [] },
    parentFolder: folder,
  })
  egress = remoteEgress(gateway.forHandles)
})
afterEach(async () => {
  vi.useRealTimers()
  await grant?.close()
  grant = undefined
  await egress.close()
  await gateway.close()
  fs.rmSync(folder, { recursive: true, force: true })
})

const NOBODY: EgressPolicy = { kind: 'static', allowedHosts: ['nobody.invalid'] }
const open = async (policy: EgressPolicy = NOBODY): Promise<EgressGrant> =>
  (grant = await egress.grant!({ sandbox: 'sbx_1', tenant: undefined, policy, credential: 'handle' }))

/** The answer to a request for a tunnel under a handle: what the gateway takes anywhere else too. */
async function answer(handle: string, host = 'somewhere.invalid'): Promise<string> {
  const { hostname, port } = new URL(gateway.forHandles.url)
  const socket = net.connect({ host: hostname, port: Number(port) })
  socket.on('error', () => undefined)
  socket.write(`CONNECT ${host}:443 HTTP/1.1\r\nProxy-Authorization: Bearer ${handle}\r\n\r\n`)
  const head = await new Promise<string>((resolve) => socket.once('data', (data) => resolve(data.toString('latin1'))))
  socket.destroy()
  return /x-deny-reason: (\S+)/.exec(head)?.[1] ?? head
}

test('it gives what it has what it takes for', () => {
  expect([egress.gives?.('handle'), egress.gives?.('token')]).toEqual([true, false])
  const { control: _control, ...keyAlone } = gateway.remote
  const signing = remoteEgress(keyAlone)
  expect([signing.gives?.('handle'), signing.gives?.('token')]).toEqual([false, true])
  expect(() => remoteEgress({ url: gateway.remote.url, issuerKey: gateway.remote.issuerKey })).toThrow(TypeError)
})

test('a handle fits into 255 bytes, and stands for the policy; what was decided can be asked for', async () => {
  const own = await open()
  const handle = await own.token()
  expect(handle).toMatch(/^sph_[\w-]{32}$/)
  expect([await answer(handle), await answer(handle, 'nobody.invalid')]).toEqual(['host_not_allowed', 'dns_failed'])
  expect([await own.decisionOn?.('somewhere.invalid'), await own.decisionOn?.('nobody.invalid')]).toEqual(['host_not_allowed', 'dns_failed']) // prettier-ignore
  expect(await own.decisionOn?.('never.invalid')).toBeUndefined()
})

test('what another sandbox asked for is no answer', async () => {
  const other = await egress.grant!({ sandbox: 'sbx_2', tenant: undefined, policy: NOBODY, credential: 'handle' })
  expect(await answer(await other.token())).toBe('host_not_allowed')
  expect(await (await open()).decisionOn?.('somewhere.invalid')).toBeUndefined()
  await other.close()
})

test('the next one is given before the old one ends', async () => {
  vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] })
  const own = await open()
  const taken: [string, string][] = []
  await own.begin((handle, why) => Promise.resolve(void taken.push([handle, why])))
  await vi.advanceTimersByTimeAsync(270_000)
  expect(taken).toHaveLength(1)
  // The gateway is asked in real time.
  await vi.waitFor(
    async () => {
      await vi.advanceTimersByTimeAsync(5_000)
      expect(taken).toHaveLength(2)
    },
    { timeout: 20_000 },
  )
  expect(new Set(taken.map(([handle]) => handle)).size).toBe(2)
  expect(taken.map(([, why]) => why)).toEqual(['renewal', 'renewal'])
  for (const [handle] of taken) expect(await answer(handle)).toBe('host_not_allowed')
})

test('another policy kills the handle before, and closing kills all of them', async () => {
  const own = await open()
  const former = await own.token()
  const taken: string[] = []
  await own.begin((handle, why) => Promise.resolve(void taken.push(`${handle} ${why}`)))
  await own.setPolicy({ kind: 'deny-all' })
  const present = await own.token()
  expect(taken).toEqual([`${former} renewal`, `${present} policy`])
  expect([await answer(former), await answer(present)]).toEqual(['token_revoked', 'host_not_allowed'])
  await own.close()
  expect(await answer(present)).toBe('token_revoked')
})

test('a policy that the gateway can not read makes none, and changes none', async () => {
  const bad = { kind: 'static', allowedHosts: ['*.com'] } as const
  await expect(open(bad)).rejects.toMatchObject({ code: 'SALLYPORT_POLICY_INVALID' })
  const own = await open()
  const handle = await own.token()
  await expect(own.setPolicy(bad)).rejects.toMatchObject({ code: 'SALLYPORT_POLICY_INVALID' })
  expect(await own.token()).toBe(handle)
  expect(await answer(handle)).toBe('host_not_allowed')
})

test('a resolver is asked for each, and one that fails makes none', async () => {
  let asked = 0
  const own = await open({ kind: 'resolver', resolve: () => Promise.resolve([`host${++asked}.invalid`]) })
  expect(await answer(await own.token(), 'host1.invalid')).toBe('dns_failed')
  await expect(own.setPolicy({ kind: 'resolver', resolve: () => Promise.reject(new Error('down')) })).rejects.toThrow('down') // prettier-ignore
  expect(await answer(await own.token(), 'host1.invalid')).toBe('dns_failed')
})
