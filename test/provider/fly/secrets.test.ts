/** What an attacker who sees errors, listings, records, the host's folder or the platform's own view of a machine gets to know: no credential that is good. */
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { inspect } from 'node:util'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { createWorkerClient } from '../../../provider/worker-client.ts'
import { describeNeeding } from '../needs.ts'
import { type FlyBench, openFlyBench } from './provider.ts'

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces'], 'credentials for Fly', () => {
  let bench: FlyBench
  beforeAll(async () => {
    bench = await openFlyBench({ rateLimit: false })
  })
  afterAll(() => bench.close())
  const deep = (value: unknown): string => inspect(value, { depth: 12, showHidden: true, maxStringLength: null, maxArrayLength: null }) // prettier-ignore

  test('are in no error, listing, record or reply, though the platform says them back', async () => {
    const marker = bench.server.apiToken
    const provider = bench.provider()
    const seen: string[] = [deep(provider), deep(provider.capabilities)]
    for (const body of [{ error: `token ${marker} may not` }, { error: `Bearer ${marker}`, status: marker }])
      for (const status of [400, 403, 422, 500]) {
        bench.server.misbehave('POST', '/machines', { status, body })
        const error: unknown = await provider.create().then(
          () => undefined,
          (thrown: unknown) => thrown,
        )
        expect(error).toBeInstanceOf(Error)
        seen.push(deep(error), JSON.stringify(error))
      }
    await using sandbox = await provider.create({ labels: { job: 'x' } })
    seen.push(deep(sandbox), deep(await provider.list()), JSON.stringify(await provider.list()))
    seen.push((await sandbox.exec('env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null')).stdout)
    for (const file of fs.readdirSync(bench.runtimeRoot, { recursive: true, encoding: 'utf8' }))
      if (fs.statSync(path.join(bench.runtimeRoot, file)).isFile()) seen.push(fs.readFileSync(path.join(bench.runtimeRoot, file), 'latin1')) // prettier-ignore
    for (const machine of bench.server.machines()) seen.push(JSON.stringify(machine.config), deep(bench.server.machine(machine.id)?.said)) // prettier-ignore
    expect(seen.filter((text) => text.includes(marker))).toEqual([])
  })

  test('are not what the platform keeps of a machine: its bearer is worthless, and no token and no environment is there', async () => {
    const env = { SECRET_OF_CALLER: 'caller-secret-0123456789' }
    await using sandbox = await bench.provider().create({ env })
    expect((await sandbox.exec('echo $SECRET_OF_CALLER')).stdout).toBe('caller-secret-0123456789\n')
    const [machine] = bench.server.machines()
    const kept = machine?.config as { files: { guest_path: string; raw_value: string; mode: number }[] } & object
    const [file] = kept.files
    expect(file).toMatchObject({ guest_path: '/etc/sallyport/settings.json', mode: 0o400 })
    const settings = JSON.parse(Buffer.from(file?.raw_value ?? '', 'base64').toString()) as { token: string; gateway: object } // prettier-ignore
    expect(Object.keys(settings.gateway).sort()).toEqual(['host', 'port', 'url'])
    expect(JSON.stringify({ ...kept, files: settings })).not.toMatch(/caller-secret|eyJ/)
    const address = bench.server.machine(machine?.id ?? '')?.guest?.address ?? ''
    const stranger = createWorkerClient({
      token: settings.token,
      connect: () =>
        new Promise((resolve, reject) => {
          const socket = net.connect(2024, address, () => resolve(socket)).once('error', reject)
        }),
    })
    await expect(stranger.execute({ command: 'id' })).rejects.toMatchObject({ cause: { message: 'the worker does not know the bearer' } }) // prettier-ignore
  })

  test('do not go to a gateway in the clear outside of the private network, nor to an address that is none of it', async () => {
    const { createSandboxProvider } = await import('../../../provider/index.ts')
    for (const url of ['http://192.0.2.7:3128', 'http://gateway.example:3128', 'https://gateway.example:3128']) {
      const provider = createSandboxProvider({
        backend: { tier: 'microvm', service: 'fly-machines', apiToken: bench.server.apiToken, app: bench.server.app, image: 'registry.fly.io/sandboxes:1', apiUrl: bench.server.url }, // prettier-ignore
        runtimeRoot: `${bench.runtimeRoot}2`,
        gateway: { ...bench.gateway.remote, url },
      })
      await expect(provider.create(), url).rejects.toMatchObject({ fault: 'network_unsafe' })
      await provider[Symbol.asyncDispose]()
    }
  })
})
