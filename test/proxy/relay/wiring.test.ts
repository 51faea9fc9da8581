import net from 'node:net'
import { expect, test } from 'vitest'
import { own, type SocketOwner } from '../../../proxy/relay/wiring.ts'

/** What a socket refers to under a symbol, which is where owners are kept. */
function keptBy(socket: net.Socket): readonly unknown[] {
  const fields = socket as unknown as Record<symbol, unknown>
  return Object.getOwnPropertySymbols(socket).map((symbol) => fields[symbol])
}

test('a socket keeps its owner until it is closed, and no longer: closed sockets stay in memory for a while', async () => {
  const socket = new net.Socket()
  const { promise: closed, resolve } = Promise.withResolvers<undefined>()
  const faults: unknown[] = []
  const owner: SocketOwner = {
    onRead: () => false,
    onChunk: () => undefined,
    onEnd: () => undefined,
    onDrain: () => undefined,
    onFault: (fault) => faults.push(fault),
    onClosed: () => resolve(undefined),
  }
  own(socket, owner)
  expect(keptBy(socket)).toContain(owner)
  const fault = Object.assign(new Error('planted'), { code: 'EPLANTED' })
  socket.destroy(fault)
  await closed
  expect(faults).toEqual([fault])
  expect(keptBy(socket)).not.toContain(owner)
  // Nobody is left to hear it, and nothing ends by it.
  socket.emit('error', fault)
})
