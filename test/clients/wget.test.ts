/** wget: variables in lower case, and the options that name the credentials apart. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { example } from './documented.ts'
import { type Clients, GREETING, startClients } from './fixture.ts'
import { describeWith } from './installed.ts'

describeWith('wget', 'wget', () => {
  let clients: Clients
  beforeAll(async () => {
    clients = await startClients()
  })
  afterAll(() => clients.close())

  test('TLS and plain HTTP', async () => {
    const run = await clients.run(example('wget', clients.allowed))
    expect(run).toMatchObject({
      code: 0,
      stdout: `${GREETING.tls}\n${GREETING.plain}\n`,
      outcomes: ['allow', 'allow'],
      dialects: ['connect', 'http'],
    })
  })

  test('a refusal: the reason phrase, and the headers with -S', async () => {
    const run = await clients.run(example('wget', clients.denied))
    expect(run).toMatchObject({ outcomes: ['host_not_allowed'], stdout: '' })
    expect(run.code).not.toBe(0)
    const plain = await clients.run({
      argv: ['wget', '-S', '-O-', `http://${clients.denied.host}:${clients.denied.plainPort}/`],
      env: clients.proxyVariables,
    })
    expect(plain).toMatchObject({ code: 8, outcomes: ['host_not_allowed'] })
    expect(plain.stderr).toContain('403 Host Not Allowed')
    expect(plain.stderr).toContain('x-deny-reason: host_not_allowed')
    const secure = await clients.run({
      argv: ['wget', '-O-', `https://${clients.denied.host}:${clients.denied.tlsPort}/`],
      env: clients.proxyVariables,
    })
    expect(secure.stderr).toContain('Proxy tunneling failed: Host Not Allowed')
  })

  test('--proxy-user and --proxy-password', async () => {
    const run = await clients.run(example('wget-options', clients.allowed))
    expect(run).toMatchObject({ code: 0, stdout: `${GREETING.tls}\n`, outcomes: ['allow'] })
  })
})
