/** curl: every way in which it takes a proxy and credentials. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { example } from './documented.ts'
import { type Clients, GREETING, startClients, urlOf } from './fixture.ts'
import { describeWith } from './installed.ts'

describeWith('curl', 'curl', () => {
  let clients: Clients
  beforeAll(async () => {
    clients = await startClients()
  })
  afterAll(() => clients.close())

  test('-x: TLS through CONNECT', async () => {
    const run = await clients.run(example('curl-proxy', clients.allowed))
    expect(run).toMatchObject({ code: 0, stdout: `${GREETING.tls}\n`, outcomes: ['allow'], dialects: ['connect'] })
  })

  test('-x: a refusal shows its reason with -v', async () => {
    const run = await clients.run(example('curl-refused', clients.denied))
    expect(run.outcomes).toEqual(['host_not_allowed'])
    expect(run.stderr).toContain('CONNECT tunnel failed, response 403')
    expect(run.stderr).toContain('403 Host Not Allowed')
    expect(run.stderr).toContain('x-deny-reason: host_not_allowed')
    expect(run.code).toBe(56)
  })

  test('-x: plain HTTP, allowed and refused; the refusal is the answer itself', async () => {
    const run = await clients.run(example('curl-plain', clients.allowed))
    expect(run).toMatchObject({ code: 0, outcomes: ['allow'], dialects: ['http'] })
    expect(run.stdout).toContain(GREETING.plain)
    const refused = await clients.run(example('curl-plain', clients.denied))
    expect(refused.outcomes).toEqual(['host_not_allowed'])
    expect(refused.stdout).toContain('"error":"host_not_allowed"')
  })

  test('a request body goes up a tunnel and in plain', async () => {
    for (const scheme of ['https', 'http'] as const) {
      const argv = ['curl', '-sS', '-T', '-', '-x', clients.loginUrl, urlOf(clients.allowed, scheme)] as const
      const run = await clients.run({ argv: [...argv], input: 'x'.repeat(200_000) })
      expect(run).toMatchObject({
        code: 0,
        stdout: `${scheme === 'https' ? GREETING.tls : GREETING.plain}\n`,
        outcomes: ['allow'],
      })
    }
  })

  test('two URLs of one run', async () => {
    const run = await clients.run({
      argv: ['curl', '-sS', '-x', clients.loginUrl, urlOf(clients.allowed, 'http'), urlOf(clients.allowed, 'http')],
    })
    expect(run).toMatchObject({ code: 0, outcomes: ['allow', 'allow'], connections: 1 })
  })

  test('--proxy-header: a Bearer token', async () => {
    const run = await clients.run(example('curl-bearer', clients.allowed))
    expect(run).toMatchObject({ code: 0, stdout: `${GREETING.tls}\n`, outcomes: ['allow'] })
  })

  test.each(['https', 'http'] as const)(
    '--proxy-anyauth: %s asks first, then answers on the same connection',
    async (scheme) => {
      const argv = ['curl', '-sS', '--proxy-anyauth', '-x', clients.proxyUrl, '-U', `sandbox:${clients.token}`] as const
      const run = await clients.run({ argv: [...argv, urlOf(clients.allowed, scheme)] })
      expect(run).toMatchObject({ code: 0, outcomes: ['token_missing', 'allow'], connections: 1 })
      const refused = await clients.run({ argv: [...argv, '-v', urlOf(clients.denied, scheme)] })
      expect(refused.outcomes).toEqual(['token_missing', 'host_not_allowed'])
      expect(refused.stderr).toContain('x-deny-reason: host_not_allowed')
    },
  )

  test('wrong credentials: 407 with the reason, and it stops asking', async () => {
    const argv = ['curl', '-sSv', '--proxy-anyauth', '-x', clients.proxyUrl, '-U', 'sandbox:none.of.them'] as const
    const run = await clients.run({ argv: [...argv, urlOf(clients.allowed, 'https')] })
    expect(run.code).toBe(56)
    expect(run.outcomes).toEqual(['token_missing', 'token_malformed'])
    expect(run.stderr).toContain('x-deny-reason: token_malformed')
    expect(run.stderr.replaceAll(/^> .*$/gm, '')).not.toContain('none.of.them')
  })

  test('--socks5-hostname with a short token', async () => {
    const token = await clients.gateway.shortToken({ egress: { kind: 'allow-all' } })
    expect(token.length).toBeLessThanOrEqual(255)
    const run = await clients.run(example('curl-socks', clients.allowed, { SALLYPORT_TOKEN: token }))
    expect(run).toMatchObject({ code: 0, outcomes: ['allow'], dialects: ['socks5'] })
    expect(run.stdout).toContain(GREETING.tls)
  })

  test('--socks5-hostname with a handle, plain HTTP too; a refusal is reply code 2', async () => {
    const handle = await mintHandle(clients, clients.token)
    const run = await clients.run(example('curl-socks', clients.allowed, { SALLYPORT_TOKEN: handle }))
    expect(run).toMatchObject({ code: 0, outcomes: ['allow'], dialects: ['socks5'] })
    const argv = ['curl', '-sS', '--socks5-hostname', clients.proxyUrl.slice(7), '-U', `sandbox:${handle}`] as const
    const plain = await clients.run({ argv: [...argv, urlOf(clients.allowed, 'http')] })
    expect(plain).toMatchObject({ code: 0, stdout: `${GREETING.plain}\n`, outcomes: ['allow'] })
    const refused = await clients.run({ argv: [...argv, urlOf(clients.denied, 'https')] })
    expect(refused).toMatchObject({ code: 97, outcomes: ['host_not_allowed'] })
    expect(refused.stderr).toContain('(2)')
  })

  test('--socks5 sends the address that it found, which a policy of names refuses', async () => {
    const egress = { kind: 'static', allowedHosts: [`${clients.allowed.host}:${clients.allowed.tlsPort}`] }
    const token = await mintHandle(clients, await clients.gateway.token({ egress }))
    const { host, tlsPort } = clients.allowed
    const argv = [
      'curl',
      '-sS',
      '--socks5',
      clients.proxyUrl.slice(7),
      '-U',
      `sandbox:${token}`,
      '--resolve',
      `${host}:${tlsPort}:127.66.0.1`,
    ] as const
    const run = await clients.run({ argv: [...argv, urlOf(clients.allowed, 'https')] })
    expect(run).toMatchObject({ code: 97, outcomes: ['address_not_allowed'], dialects: ['socks5'] })
  })

  test('SOCKS5 can not carry a long token, and curl says so', async () => {
    const run = await clients.run(example('curl-socks', clients.allowed))
    expect(run.code).toBe(97)
    expect(run.stdout).toBe('')
  })
})

describeWith('curl', 'curl, with TLS to the gateway', () => {
  let clients: Clients
  beforeAll(async () => {
    clients = await startClients({ tlsToProxy: true })
  })
  afterAll(() => clients.close())

  test('-x https://: TLS in TLS, plain HTTP in TLS, and a refusal', async () => {
    const run = await clients.run(example('curl-tls', clients.allowed, { GATEWAY_CA: clients.caFile }))
    expect(run).toMatchObject({ code: 0, stdout: `${GREETING.tls}\n`, outcomes: ['allow'] })
    const argv = ['curl', '-sSv', '--proxy-cacert', clients.caFile, '-x', clients.loginUrl] as const
    const plain = await clients.run({ argv: [...argv, urlOf(clients.allowed, 'http')] })
    expect(plain).toMatchObject({ code: 0, stdout: `${GREETING.plain}\n`, outcomes: ['allow'] })
    const refused = await clients.run({ argv: [...argv, urlOf(clients.denied, 'https')] })
    expect(refused.outcomes).toEqual(['host_not_allowed'])
    expect(refused.stderr).toContain('x-deny-reason: host_not_allowed')
  })

  test('without TLS to such a gateway nothing gets through', async () => {
    const run = await clients.run({
      argv: ['curl', '-sS', '-x', clients.loginUrl.replace('https', 'http'), urlOf(clients.allowed, 'https')],
    })
    expect(run.code).not.toBe(0)
    expect(run.outcomes).toEqual([])
  })
})

/** As `sallyport token mint --handle` does on the state folder of a running gateway. */
async function mintHandle({ gateway }: Clients, token: string): Promise<string> {
  const { openHandles } = await import('../../proxy/state/handles.ts')
  const { systemClock } = await import('../../proxy/clock.ts')
  const handles = await openHandles(`${gateway.folder}/state/handles`, systemClock)
  return handles.mint(token, Date.now() + 600_000)
}
