/** A tunnel that has to wait, for its first byte or behind what came early: others, or itself, have used up what may pass in a second. */
import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import { afterEach, expect, test } from 'vitest'
import { type Gateway, startGateway, startOrigin, turnsOfTheLoop } from './harness.ts'

const FOREVER_MS = 2 ** 31 - 1
const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

/** An origin that echoes, and a gateway whose tunnels wait so long at their start. */
async function startWaiting(waitMs: number): Promise<Gateway> {
  const origin = net.createServer((socket) => socket.on('error', () => undefined).pipe(socket))
  origin.listen(0, '127.0.0.1')
  await once(origin, 'listening')
  closers.push(() => origin.close())
  const pace = (bytes: number): number => (bytes === 0 ? waitMs : 0)
  const gateway = await startGateway('tcp', {
    originPort: (origin.address() as AddressInfo).port,
    readsLine: true,
    relay: { pace },
  })
  closers.push(() => gateway.close())
  return gateway
}

test('what came early comes first when the wait is over', async () => {
  const gateway = await startWaiting(50)
  const socket = gateway.connect()
  socket.end('hello\nearly and more')
  let text = ''
  for await (const chunk of socket) text += String(chunk)
  expect(text).toBe('ok\nearly and more')
})

test('one that is cut while it waits ends once, and nothing of it went up', async () => {
  const gateway = await startWaiting(FOREVER_MS)
  const socket = gateway.connect().on('error', () => undefined)
  const next = gateway.next()
  socket.write('hello\nearly')
  const running = await next
  running.relay.cut('token_revoked')
  running.relay.cut('token_expired')
  expect(await running.closed).toEqual({ closeReason: 'token_revoked', bytesIn: 0, bytesOut: 0 })
  expect(gateway.results).toHaveLength(1)
})

test('what came early is paid for before more is read', async () => {
  const origin = await startOrigin((socket) => socket.resume())
  closers.push(() => origin.close())
  const pace = (bytes: number): number => (bytes === 0 ? 0 : FOREVER_MS)
  const gateway = await startGateway('tcp', { originPort: origin.port, readsLine: true, relay: { pace } })
  closers.push(() => gateway.close())
  const socket = gateway.connect().on('error', () => undefined)
  const next = gateway.next()
  socket.write('hello\nearly')
  await once(socket, 'data')
  const { relay } = await next
  await new Promise((resolve) => socket.write('and more', resolve))
  await turnsOfTheLoop(100)
  expect(relay.bytesOut).toBe('early'.length)
})

test('what came early and is not through when it is cut never looks whole to the origin, though its client has ended', async () => {
  const { promise: accepted, resolve } = Promise.withResolvers<net.Socket>()
  const origin = await startOrigin((socket) => resolve(socket.pause()))
  closers.push(() => origin.close())
  const early = Buffer.alloc(32 * 1024 * 1024)
  const gateway = await startGateway('tcp', { originPort: origin.port, relay: { early } })
  closers.push(() => gateway.close())
  const next = gateway.next()
  gateway.connect().end()
  const running = await next
  const upstream = await accepted
  await turnsOfTheLoop(100)
  running.relay.cut('token_expired')
  const ending = new Promise((ends) => {
    upstream.once('end', () => ends('clean')).once('error', (fault: NodeJS.ErrnoException) => ends(fault.code))
  })
  upstream.resume()
  expect(await ending).toBe('ECONNRESET')
})
