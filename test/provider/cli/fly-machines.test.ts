/** `sallyport sandbox --backend fly-machines` sees what other hosts made on Fly, and takes it away; `doctor` says what it lacks. */
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { type FlyBench, openFlyBench } from '../fly/provider.ts'
import { describeNeeding } from '../needs.ts'
import { runElsewhere } from './run-elsewhere.ts'

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces'], 'sallyport sandbox on Fly', () => {
  let bench: FlyBench
  beforeAll(async () => {
    bench = await openFlyBench({ rateLimit: false })
  })
  afterAll(() => bench.close())

  const run = (args: readonly string[], given: Readonly<Record<string, string>>) =>
    runElsewhere(args, given, bench.runtimeRoot)
  const variables = () => ({ FLY_API_TOKEN: bench.server.apiToken, SALLYPORT_FLY_APP: bench.server.app, SALLYPORT_FLY_API: bench.server.url }) // prettier-ignore

  test('lists and reaps what another host made', async () => {
    const sandbox = await bench.provider().create({ labels: { job: 'nightly' } })
    const listed = await run(['sandbox', 'list', '--backend', 'fly-machines', '--json'], variables())
    expect(JSON.parse(listed.out)).toMatchObject([{ id: sandbox.id, backend: 'fly-machines', labels: { job: 'nightly' }, platform: { state: 'started', region: 'fra' } }]) // prettier-ignore
    expect((await run(['sandbox', 'reap', '--backend', 'fly-machines'], variables())).out).toBe('There was nothing to take away.') // prettier-ignore
    const reaped = await run(['sandbox', 'reap', '--backend', 'fly-machines', '--older-than', '1ms', '--json'], variables()) // prettier-ignore
    expect(JSON.parse(reaped.out)).toEqual([sandbox.id])
    expect(bench.server.machines()).toEqual([])
    await expect.poll(() => sandbox.status, { timeout: 30_000 }).toBe('destroyed')
  })

  test('names the variables that it wants, and prints no token', async () => {
    const without = await run(['sandbox', 'list', '--backend', 'fly-machines'], {})
    expect(without.code).not.toBe(0)
    expect(without.err).toContain('FLY_API_TOKEN and SALLYPORT_FLY_APP')
    const wrong = await run(['sandbox', 'list', '--backend', 'fly-machines'], { ...variables(), FLY_API_TOKEN: 'fm2_marker-of-a-token' }) // prettier-ignore
    expect(wrong.err).toContain('token validation error')
    expect(wrong.out + wrong.err).not.toContain('marker')
  })
})
