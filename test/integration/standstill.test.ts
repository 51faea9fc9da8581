/** A process that had no turn for longer than a head may take serves who had sent his in time. */
import { afterEach, expect, test } from 'vitest'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

let running: TestGateway | undefined
afterEach(() => running?.close())

test('a head that arrived during a standstill is answered', async () => {
  running = await startTestGateway({ policy: { ceiling: { kind: 'deny-all' } }, timeouts: { headSeconds: 1 } })
  const token = await running.token()
  const client = await WireClient.connect({ host: '127.0.0.1', port: running.port })
  // The gateway has accepted it and waits.
  await client.staysOpen(100)
  client.send(`CONNECT a.example.test:443 HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3000)
  expect((await client.answer())?.status).toBe(403)
  client.destroy()
})

test('who has sent nothing is ended all the same', async () => {
  running = await startTestGateway({ timeouts: { headSeconds: 1 } })
  const client = await WireClient.connect({ host: '127.0.0.1', port: running.port })
  await client.staysOpen(100)
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3000)
  expect(await client.over()).toEqual(Buffer.alloc(0))
  client.destroy()
})
