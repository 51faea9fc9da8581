/** That everything open is looked at again, and that what is cut carries nothing while it waits for its end. */
import type net from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { systemClock } from '../../../proxy/clock.ts'
import type { CloseReason } from '../../../proxy/reasons.ts'
import type { Identity } from '../../../proxy/tokens/identity.ts'
import { type LiveChecks, recheckAll } from '../../../proxy/tunnels/live-checks.ts'
import { type Tunnel, TunnelRegistry } from '../../../proxy/tunnels/registry.ts'
import { startGateway, startOrigin } from '../relay/harness.ts'

const LAYERS = { layers: [], version: '1' }
const NETWORK = {} as ReturnType<LiveChecks['network']>
const closers: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

function setUp(over: Partial<LiveChecks> = {}) {
  const registry = new TunnelRegistry({ clock: systemClock, idleTimeoutMs: 3_600_000 })
  closers.push(() => registry.close())
  const revoked = new Set<string>()
  const checks: LiveChecks = {
    isRevoked: ({ sandbox }) => sandbox !== undefined && revoked.has(sandbox),
    layersFor: () => LAYERS,
    layersKnownFor: () => LAYERS,
    network: () => NETWORK,
    clock: systemClock,
    ...over,
  }
  return { registry, revoked, checks }
}

function tunnelOf(sandbox: string, relay: Tunnel['relay']): Tunnel {
  return {
    requestId: sandbox,
    identity: { sandbox } as Identity,
    permit: undefined as unknown as Tunnel['permit'],
    decidedBy: { layers: LAYERS, network: NETWORK },
    expiresAtMs: Date.now() + 3_600_000,
    place: { addBytes: () => false, release: () => undefined },
    relay,
  }
}

/** Without sockets; its end takes longer than a slice. */
function slow(sandbox: string) {
  const cuts: CloseReason[] = []
  const relay = {
    bytesIn: 0,
    bytesOut: 0,
    lastActivityMs: systemClock.monotonicMs(),
    stop: () => undefined,
    cut: (reason: CloseReason) => {
      cuts.push(reason)
      busyMs(6)
    },
  }
  return { tunnel: tunnelOf(sandbox, relay), cuts }
}

function busyMs(ms: number): void {
  const untilMs = performance.now() + ms
  while (performance.now() < untilMs);
}

/** A tunnel between real sockets, and what came out at either end. */
async function openTunnel() {
  const { promise: accepted, resolve } = Promise.withResolvers<net.Socket>()
  const origin = await startOrigin(resolve)
  closers.push(() => origin.close())
  const gateway = await startGateway('tcp', { originPort: origin.port })
  closers.push(() => gateway.close())
  const client = gateway.connect()
  closers.push(() => void client.destroy())
  const running = await gateway.next()
  const atOrigin = (await accepted).setEncoding('latin1')
  const seen = { up: '', down: '', endsInOrder: 0 }
  atOrigin.on('data', (text: string) => (seen.up += text)).on('end', () => seen.endsInOrder++)
  client.setEncoding('latin1').on('data', (text: string) => (seen.down += text))
  client.on('end', () => seen.endsInOrder++)
  client.write('before')
  atOrigin.write('before')
  await expect.poll(() => [seen.up, seen.down]).toEqual(['before', 'before'])
  return { client, atOrigin, running, seen }
}

test('attack: no byte and no end in order passes, either way, on a revoked tunnel that waits behind others for its end', async () => {
  const { registry, revoked, checks } = setUp()
  const { client, atOrigin, running, seen } = await openTunnel()
  registry.add(tunnelOf('sbx', running.relay))
  const others = Array.from({ length: 20 }, () => slow('sbx'))
  for (const { tunnel } of others) registry.add(tunnel)
  revoked.add('sbx')
  const rechecking = recheckAll(registry, checks)
  client.end('after')
  atOrigin.end('after')
  const { over } = await rechecking
  expect(running.client.closed).toBe(false)
  client.write('later')
  await over
  expect(await running.closed).toMatchObject({ closeReason: 'token_revoked', bytesIn: 6, bytesOut: 6 })
  await expect.poll(() => client.closed && atOrigin.closed).toBe(true)
  expect(seen).toEqual({ up: 'before', down: 'before', endsInOrder: 0 })
  expect(others.map(({ cuts }) => cuts)).toEqual(others.map(() => ['token_revoked']))
})

test('a tunnel that closes by itself between being stopped and its end is written down as cut', async () => {
  const { registry, revoked, checks } = setUp()
  const { client, running } = await openTunnel()
  registry.add(tunnelOf('sbx', running.relay))
  for (let count = 0; count < 20; count++) registry.add(slow('sbx').tunnel)
  revoked.add('sbx')
  const { over } = await recheckAll(registry, checks)
  client.resetAndDestroy()
  expect(await running.closed).toMatchObject({ closeReason: 'token_revoked' })
  await over
})

test('looking leaves turns to others, and each is judged by what holds at its turn', async () => {
  const { registry, revoked, checks } = setUp()
  const tunnels = Array.from({ length: 20 }, (_none, at) => slow(`sbx${at}`))
  for (const { tunnel } of tunnels) registry.add(tunnel)
  let turns = 0
  const slowChecks: LiveChecks = {
    ...checks,
    isRevoked: (identity) => {
      busyMs(6)
      return checks.isRevoked(identity)
    },
  }
  const first = recheckAll(registry, slowChecks)
  // Both come when the first look is under way: what it has passed is for the second.
  const count = () => {
    turns++
    if (turns === 5) {
      revoked.add('sbx0')
      revoked.add('sbx19')
      void recheckAll(registry, checks)
    }
    if (turns < 10_000) setImmediate(count)
  }
  setImmediate(count)
  await (
    await first
  ).over
  await registry.cutsDone()
  turns += 10_000
  expect(turns).toBeGreaterThan(10_010)
  expect(tunnels.filter(({ cuts }) => cuts.length > 0)).toEqual([tunnels[0], tunnels[19]])
})

test('a policy that nobody knows yet holds up no other tunnel, and what is lost meanwhile does not wait for it', async () => {
  const { promise: layers, resolve, reject } = Promise.withResolvers<typeof LAYERS>()
  const { registry, revoked, checks } = setUp()
  const [waits, lost, stays, fails] = ['waits', 'lost', 'stays', 'fails'].map(slow)
  if (!waits || !lost || !stays || !fails) throw new Error('four were made')
  for (const { tunnel } of [waits, lost, stays, fails]) registry.add(tunnel)
  revoked.add('waits')
  const { promise: never, reject: fail } = Promise.withResolvers<typeof LAYERS>()
  const { over } = await recheckAll(registry, {
    ...checks,
    layersFor: ({ sandbox }) => (sandbox === 'stays' ? layers : sandbox === 'fails' ? never : LAYERS),
    layersKnownFor: () => LAYERS,
    isRevoked: ({ sandbox }) => sandbox === 'waits' || revoked.has(sandbox ?? ''),
  })
  await registry.cutsDone()
  expect([waits.cuts, lost.cuts, stays.cuts, fails.cuts]).toEqual([['token_revoked'], [], [], []])
  revoked.add('stays')
  resolve(LAYERS)
  fail(new Error('nobody answers'))
  await over
  expect([stays.cuts, fails.cuts, lost.cuts]).toEqual([['token_revoked'], ['policy_changed'], []])
  reject(new Error('too late'))
})

test('a fault while deciding cuts', async () => {
  const { registry, checks } = setUp()
  const { tunnel, cuts } = slow('sbx')
  registry.add(tunnel)
  const isRevoked = () => {
    throw new RangeError('no')
  }
  await (
    await recheckAll(registry, { ...checks, isRevoked })
  ).over
  expect(cuts).toEqual(['policy_changed'])
})
