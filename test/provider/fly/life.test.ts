/** The end of a sandbox on Fly whose host is gone: by its own clock and the platform's, with no word from anybody. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { describeNeeding } from '../needs.ts'
import { IMAGE } from './machine-guest.ts'
import { type FlyBench, openFlyBench } from './provider.ts'

vi.setConfig({ testTimeout: 180_000, hookTimeout: 120_000 })
const INDEX = path.join(import.meta.dirname, '../../../provider/index.ts')

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces'], 'a sandbox on Fly whose host is killed', () => {
  let bench: FlyBench
  beforeAll(async () => {
    bench = await openFlyBench({ rateLimit: false })
  })
  afterAll(() => bench.close())

  async function abandon(timeoutMs: number | undefined): Promise<string> {
    const options = {
      backend: { tier: 'microvm', service: 'fly-machines', apiToken: bench.server.apiToken, app: bench.server.app, image: IMAGE, apiUrl: bench.server.url }, // prettier-ignore
      runtimeRoot: bench.runtimeRoot,
      gateway: bench.gateway.remote,
    }
    const program = `const { createSandboxProvider } = await import(${JSON.stringify(INDEX)}); const sandbox = await createSandboxProvider(${JSON.stringify(options)}).create(${JSON.stringify({ timeoutMs })}); console.log(sandbox.id); setInterval(() => undefined, 60000)` // prettier-ignore
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] }) // prettier-ignore
    const [line] = (await once(child.stdout, 'data')) as [Buffer]
    const exited = once(child, 'exit')
    child.kill('SIGKILL')
    await exited
    return line.toString().trim()
  }

  test('ends at its time, and the platform removes it', async () => {
    await abandon(15_000)
    expect(bench.server.machines()).toHaveLength(1)
    await expect.poll(() => bench.server.machines(), { timeout: 90_000 }).toEqual([])
    expect(bench.server.log().filter(({ method }) => method === 'DELETE')).toEqual([])
  })

  test('is reached and taken over by another', async () => {
    const id = await abandon(undefined)
    const attached = await bench.provider().attach(id)
    expect((await attached.exec('echo here')).stdout).toBe('here\n')
    await attached.destroy()
    expect(bench.server.machines()).toEqual([])
  })
})
