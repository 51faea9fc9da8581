/** Tokens of many kilobytes, which proxies with small heads answer with 431. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { example } from './documented.ts'
import { type Clients, GREETING, startClients } from './fixture.ts'
import { describeWith } from './installed.ts'

describe('long tokens', () => {
  let clients: Clients
  beforeAll(async () => {
    clients = await startClients()
  })
  afterAll(() => clients.close())

  /** What a client is given for a token of so many bytes. */
  async function variables(kibibytes: number): Promise<Record<string, string>> {
    const token = await clients.longToken(kibibytes * 1024)
    expect(token.length).toBeGreaterThanOrEqual(kibibytes * 1024)
    const url = clients.proxyUrl.replace('://', `://sandbox:${token}@`)
    return {
      SALLYPORT_TOKEN: token,
      ...Object.fromEntries(Object.keys(clients.proxyVariables).map((name) => [name, url])),
      NODE_USE_ENV_PROXY: '1',
    }
  }

  describe.each([1, 8, 16])('of %i KiB', (kibibytes) => {
    describeWith('curl', 'curl', () => {
      test.each(['curl-proxy', 'curl-plain'])('%s', async (name) => {
        const run = await clients.run(example(name, clients.allowed, await variables(kibibytes)))
        expect(run).toMatchObject({ code: 0, outcomes: ['allow'] })
      })
    })
    describeWith('Python with requests', 'Python', () => {
      test('requests', async () => {
        const run = await clients.run(example('python-requests', clients.allowed, await variables(kibibytes)))
        expect(run).toMatchObject({
          code: 0,
          stdout: `${GREETING.tls}\n\n${GREETING.plain}\n\n`,
          outcomes: ['allow', 'allow'],
        })
      })
    })
    test('Node fetch', async () => {
      const run = await clients.run(example('node-fetch', clients.allowed, await variables(kibibytes)))
      expect(run).toMatchObject({ code: 0, outcomes: ['allow', 'allow'] })
    })
  })

  describeWith('curl', 'longer than a head may be', () => {
    test('as Basic credentials, which take a third more: 431 with the reason', async () => {
      const run = await clients.run(example('curl-refused', clients.allowed, await variables(25)))
      expect(run.outcomes).toEqual(['head_too_large'])
      expect(run.stderr).toContain('431 Head Too Large')
    })

    test('as Bearer credentials it still fits', async () => {
      const run = await clients.run(example('curl-bearer', clients.allowed, await variables(25)))
      expect(run).toMatchObject({ code: 0, outcomes: ['allow'] })
    })
  })
})
