/** The agent that hands dialled connections to `node:http`: each to whom it belongs, and nothing kept of those that are closed. */
import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { UpstreamAgent, type UpstreamConnection } from '../../../proxy/dialects/upstream-connection.ts'
import type { Authorized } from '../../../proxy/request.ts'

let origin: http.Server
let agent: UpstreamAgent

beforeEach(async () => {
  agent = new UpstreamAgent()
  origin = http.createServer((_req, res) => res.end('ok'))
  origin.listen(0, '127.0.0.1')
  await once(origin, 'listening')
})
afterEach(async () => {
  agent.destroy()
  origin.close()
  origin.closeAllConnections()
  await once(origin, 'close')
})

async function connection(id: string): Promise<UpstreamConnection> {
  const socket = net.connect((origin.address() as net.AddressInfo).port, '127.0.0.1')
  await once(socket, 'connect')
  return {
    id,
    socket,
    dialled: '127.0.0.1',
    hostField: 'a',
    upstreamProxy: undefined,
    used: false,
    permission: {} as Authorized,
  }
}

async function request(over: UpstreamConnection): Promise<void> {
  const upReq = http.request({ ...agent.optionsFor(over), headers: ['Host', 'a', 'Connection', 'keep-alive'] })
  upReq.end()
  const [upRes] = (await once(upReq, 'response')) as [http.IncomingMessage]
  upRes.resume()
  await once(upReq, 'close')
}

const kept = (): string[] => [
  ...Object.keys(agent.sockets),
  ...Object.keys(agent.freeSockets),
  ...Object.keys(agent.requests),
]

test('a connection is used again, and forgotten when it closes', async () => {
  const one = await connection('1')
  for (let round = 0; round < 3; round++) await request(one)
  expect(kept()).toEqual(['1'])
  one.socket.destroy()
  await once(one.socket, 'close')
  expect(kept()).toEqual([])
})

test('a hundred connections leave nothing behind', async () => {
  for (let id = 0; id < 100; id++) {
    const one = await connection(String(id))
    await request(one)
    one.socket.destroy()
    await once(one.socket, 'close')
  }
  expect(kept()).toEqual([])
})

test('a connection that was closed is an error, opens no other, and leaves nothing behind', async () => {
  const one = await connection('1')
  await request(one)
  one.socket.destroy()
  await once(one.socket, 'close')
  await expect(request(one)).rejects.toMatchObject({ code: 'ECONNRESET' })
  expect(kept()).toEqual([])
})
