import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { runMain, temporaryFolder } from './run-cli.ts'

const folder = temporaryFolder()
afterAll(() => folder.close())

interface Finding {
  readonly name: string
  readonly status: string
  readonly detail: string
  readonly fix?: string
}

async function examine(
  config: string,
  environment: Record<string, string> = {},
): Promise<{ code: number | null; ok: boolean; find: (name: string) => Finding | undefined }> {
  const file = join(folder.path, 'sallyport.yaml')
  writeFileSync(file, config)
  const { code, stdout } = await runMain(['doctor', '--json', '--config', file], {
    environment: { PATH: folder.path, ...environment },
  })
  const { ok, findings } = JSON.parse(stdout) as { ok: boolean; findings: Finding[] }
  return { code, ok, find: (name) => findings.find((finding) => finding.name.startsWith(name)) }
}

test('a machine that can run the gateway passes, and what is missing has its command', async () => {
  writeFileSync(join(folder.path, 'nft'), '#!/bin/sh\n')
  chmodSync(join(folder.path, 'nft'), 0o755)
  writeFileSync(join(folder.path, 'docker'), 'not executable')
  const { code, ok, find } = await examine('listen: { proxy: 127.0.0.1:0, admin: 127.0.0.1:0 }\nlimits: { tunnels: 5 }')
  expect([code, ok]).toEqual([0, true])
  for (const name of [
    'Node',
    'clock',
    'reusePort',
    'configuration',
    'descriptors',
    'state folder',
    'audit folder',
    'port',
  ])
    expect(find(name)?.status, name).toBe('ok')
  expect(find('nft')).toMatchObject({ status: 'ok', detail: join(folder.path, 'nft') })
  expect(find('bwrap')).toMatchObject({ status: 'missing', fix: 'apt-get install -y bubblewrap' })
  expect(find('docker')).toMatchObject({ status: 'missing', fix: 'apt-get install -y docker.io' })
  expect(find('runsc')).toMatchObject({ status: 'missing' })
  expect(find('runsc')).not.toHaveProperty('fix')
})

test('a port in use is a warning, since a running gateway may hold it', async () => {
  const server = net.createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const { code, find } = await examine(`listen: { proxy: 127.0.0.1:${port}, admin: off }`)
  server.close()
  expect(find('port')).toMatchObject({ status: 'warn', name: `port 127.0.0.1:${port}` })
  expect(code).toBe(0)
})

test.each([
  ['a configuration with faults', 'listn: {}', 'configuration'],
  ['a state folder that is a file', 'state: sallyport.yaml', 'state folder'],
  ['a key file that is not there', 'issuers: [{ issuer: a, algorithms: [ES256], jwks: nowhere.json }]', 'file'],
  ['a certificate that is not there', 'listen: { tls: { cert: nowhere.pem, key: nowhere.key } }', 'file'],
])('%s fails', async (_name, config, name) => {
  const { code, ok, find } = await examine(config)
  expect([code, ok]).toEqual([1, false])
  expect(find(name)?.status).toBe('fail')
})

test('too few descriptors for the limit is a warning with the setting', async () => {
  const { find } = await examine('limits: { tunnels: 1000000 }')
  expect(find('descriptors')).toMatchObject({ status: 'warn', fix: 'ulimit -n 2000200' })
})

test.skipIf(process.geteuid?.() === 0)(
  'an audit folder that is not writable fails (skipped as root, who may write anywhere)',
  async () => {
    mkdirSync(join(folder.path, 'sealed'), { mode: 0o500 })
    const { find } = await examine('audit: { path: sealed }')
    expect(find('audit folder')?.status).toBe('fail')
  },
)

test('more workers than cores are a warning with the number that fits', async () => {
  const { find } = await examine('workers: 64\nlisten: { proxy: 127.0.0.1:0, admin: 127.0.0.1:0 }')
  const cores = availableParallelism()
  const few = { status: 'warn', detail: `64, and there are ${cores} cores`, fix: `workers: ${cores}` }
  expect(find('workers')).toMatchObject(cores < 64 ? few : { status: 'ok' })
})

test('for people it is a table, with one command for all that is missing', async () => {
  const { stdout } = await runMain(['doctor'], { environment: { PATH: '' } })
  expect(stdout).toMatch(/^ok +Node +v\d+/m)
  expect(stdout).toContain(
    'everything that is missing and in Debian: apt-get install -y bubblewrap docker.io nftables iproute2',
  )
})

test('an issuer of own keys without a key, and a private range that opens the metadata service, are warnings', async () => {
  const own = 'issuers: [{ issuer: a, algorithms: [ES256], stateKeys: true }]\n'
  const listen = 'listen: { proxy: 127.0.0.1:0, admin: off }\n'
  const { ok, find } = await examine(`${listen}${own}network: { allowPrivate: [169.254.0.0/16] }\n`)
  expect(ok).toBe(true)
  expect(find('own keys')).toMatchObject({
    status: 'warn',
    fix: expect.stringMatching(/^sallyport keys generate --state \//) as string,
  })
  expect(find('network')).toMatchObject({
    status: 'warn',
    detail: expect.stringContaining('169.254.169.254') as string,
  })
  await runMain(['keys', 'generate', '--config', join(folder.path, 'sallyport.yaml')])
  const after = await examine(`${listen}${own}network: { allowPrivate: [169.254.169.254, 10.0.0.0/8] }\n`)
  expect(after.find('own keys')).toBeUndefined()
  expect(after.find('network')).toBeUndefined()
})
