/** Java's HttpClient with an Authenticator, started as one source file. */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { example, exampleText } from './documented.ts'
import { type Clients, GREETING, startClients, urlOf } from './fixture.ts'
import { describeWith } from './installed.ts'

describeWith('Java', 'Java', () => {
  let clients: Clients
  let env: Record<string, string>
  beforeAll(async () => {
    clients = await startClients()
    fs.writeFileSync(path.join(clients.folder, 'Fetch.java'), exampleText('Fetch', clients.allowed))
    const store = path.join(clients.folder, 'authorities.p12')
    const made = spawnSync(
      'keytool',
      [
        '-importcert',
        '-noprompt',
        '-alias',
        'test',
        '-file',
        clients.caFile,
        '-keystore',
        store,
        '-storepass',
        'changeit',
      ],
      { encoding: 'utf8' },
    )
    if (made.status !== 0) throw new Error(made.stdout + made.stderr)
    env = {
      JAVA_TOOL_OPTIONS: `-Djavax.net.ssl.trustStore=${store} -Djavax.net.ssl.trustStorePassword=changeit -XX:TieredStopAtLevel=1 -XX:+UseSerialGC`,
    }
  })
  afterAll(() => clients.close())

  test('TLS and plain HTTP: it asks first, for each of the two', async () => {
    const run = await clients.run({ ...example('java', clients.allowed, env), cwd: clients.folder })
    expect(run.code, run.stderr).toBe(0)
    expect(run.stdout).toBe(`200 - ${GREETING.tls}\n\n200 - ${GREETING.plain}\n\n`)
    expect(run).toMatchObject({
      outcomes: ['token_missing', 'allow', 'token_missing', 'allow'],
      dialects: ['connect', 'connect', 'http', 'http'],
    })
  })

  test('a refusal: an exception with the status; in plain HTTP an answer with the reason', async () => {
    const run = await clients.run({ ...example('java', clients.denied, env), cwd: clients.folder })
    expect(run.stdout).toContain('Tunnel failed, got: 403\n')
    expect(run.stdout).toContain('403 host_not_allowed {"error":"host_not_allowed"')
    expect(run.outcomes.filter((outcome) => outcome !== 'token_missing')).toEqual([
      'host_not_allowed',
      'host_not_allowed',
    ])
  })

  test('without disabledSchemes Java never sends the credentials of a CONNECT', async () => {
    const run = await clients.run({
      argv: ['java', 'Fetch.java', urlOf(clients.allowed, 'https')],
      env,
      cwd: clients.folder,
    })
    expect(run.outcomes).not.toContain('allow')
    expect(run.stdout + run.stderr).toMatch(/407/)
  })
})
