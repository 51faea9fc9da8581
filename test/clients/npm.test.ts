/** npm against the registry that this machine is configured for: the one test here that leaves it, and only as far as npm itself would. */
import { spawnSync } from 'node:child_process'
import dns from 'node:dns/promises'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { readMachineSets } from '../../proxy/policy/machine-sets.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { exampleText } from './documented.ts'
import { startClients, type Clients, urlOf } from './fixture.ts'
import { skip } from './installed.ts'
import { runProgram } from './program.ts'

/** The machine's own environment, since its registry may need it, but for what says to go through some proxy or not. */
const environment = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value]) =>
    /proxy$/i.test(name) ||
    /^npm_(?!config_registry|config_cafile|config_userconfig)/i.test(name) ||
    value === undefined
      ? []
      : [[name, value]],
  ),
)
const cache = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-npm-'))
const quick = ['--fetch-retries=0', '--fetch-timeout=15000', '--cache', cache, '--prefer-online', '--loglevel=error']
const registry = spawnSync('npm', ['config', 'get', 'registry'], { env: environment, encoding: 'utf8' }).stdout.trim()
const direct = spawnSync('npm', ['view', 'ms', 'name', ...quick], { env: environment, encoding: 'utf8' })

afterAll(() => fs.rmSync(cache, { recursive: true, force: true }))

const body = () => {
  let gateway: TestGateway
  let login: (allowed: readonly string[]) => Promise<Record<string, string>>

  beforeAll(async () => {
    // Many registries are mirrors inside: their operator would vouch for them in the same way.
    const addresses = await dns.lookup(new URL(registry).hostname, { all: true })
    gateway = await startTestGateway(
      {
        policy: { ceiling: { kind: 'static', allowedHosts: ['@npm'] } },
        network: { allowPrivate: addresses.map(({ address }) => address) },
      },
      { machineSets: readMachineSets({ env: environment }) },
    )
    login = async (allowedHosts) => {
      const token = await gateway.token({ egress: { kind: 'static', allowedHosts } })
      const url = `http://sandbox:${token}@127.0.0.1:${gateway.port}`
      return { ...environment, https_proxy: url, http_proxy: url }
    }
  })
  afterAll(() => gateway.close())

  test('npm view of a small package; the registry is in @npm', async () => {
    const run = await runProgram({
      argv: ['sh', '-euc', exampleText('npm', { host: '', tlsPort: 0, plainPort: 0 }).trim() + ` ${quick.join(' ')}`],
      env: await login(['@npm']),
      cwd: cache,
    })
    expect(run.stdout.trim(), run.stderr).toBe('ms')
    const line = await gateway.auditLine(({ kind }) => kind === 'decision')
    expect(line).toMatchObject({ effective: 'allow', host: new URL(registry).hostname })
  })

  test('a token for another host is refused, and npm shows the reason', async () => {
    const run = await runProgram({
      argv: ['npm', 'view', 'ms', 'name', ...quick],
      env: await login(['api.example.test']),
      cwd: cache,
    })
    expect(run.code).not.toBe(0)
    expect(run.stderr).toContain('403 Host Not Allowed')
    expect(run.stderr).toContain('host_not_allowed')
    await gateway.auditLine(({ reason }) => reason === 'host_not_allowed')
  })
}

if (direct.stdout.trim() === 'ms') describe('npm and its registry', body)
else skip('npm and its registry', 'the configured registry can not be reached directly', body)

describe('npm and a registry on this machine', () => {
  let clients: Clients
  beforeAll(async () => {
    clients = await startClients({
      onRequest: (_request, response) =>
        void response.setHeader('content-type', 'application/json').end(
          JSON.stringify({
            name: 'small',
            'dist-tags': { latest: '1.2.3' },
            versions: { '1.2.3': { name: 'small', version: '1.2.3' } },
          }),
        ),
    })
  })
  afterAll(() => clients.close())

  test.each(['https', 'http'] as const)('over %s, allowed and refused', async (scheme) => {
    const env = { ...clients.proxyVariables, npm_config_cafile: clients.caFile }
    const argv = (registryUrl: string) =>
      ['npm', 'view', 'small', 'version', '--registry', registryUrl, ...quick] as [string, ...string[]]
    const run = await clients.run({ argv: argv(urlOf(clients.allowed, scheme)), env })
    expect(run.stdout.trim(), run.stderr).toBe('1.2.3')
    expect(new Set(run.outcomes)).toEqual(new Set(['allow']))
    const refused = await clients.run({ argv: argv(urlOf(clients.denied, scheme)), env })
    expect(refused.code).not.toBe(0)
    expect(refused.stderr).toContain('E403')
    expect(refused.stderr).toContain('403 Host Not Allowed')
    expect(refused.stderr).toContain('- host_not_allowed')
    expect(new Set(refused.outcomes)).toEqual(new Set(['host_not_allowed']))
  })
})
