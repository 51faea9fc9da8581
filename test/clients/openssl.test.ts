/** openssl s_client: a CONNECT of HTTP/1.0. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { example } from './documented.ts'
import { type Clients, GREETING, startClients } from './fixture.ts'
import { describeWith } from './installed.ts'

describeWith('openssl', 'openssl s_client', () => {
  let clients: Clients
  beforeAll(async () => {
    clients = await startClients()
  })
  afterAll(() => clients.close())

  test('-proxy with a login', async () => {
    const run = await clients.run(example('openssl', clients.allowed))
    expect(run).toMatchObject({ code: 0, outcomes: ['allow'] })
    expect(run.stdout).toContain(GREETING.tls)
  })

  test('a refusal shows the reason phrase', async () => {
    const run = await clients.run(example('openssl', clients.denied))
    expect(run.outcomes).toEqual(['host_not_allowed'])
    expect(run.stderr).toContain('HTTP CONNECT failed, reason= 403 Host Not Allowed')
  })
})
