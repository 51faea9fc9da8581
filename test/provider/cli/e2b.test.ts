/** `sallyport sandbox --backend e2b` sees what other hosts made at E2B, and takes it away; without a key it says what it lacks. */
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { type E2bBench, MARKER_KEY, openE2bBench } from '../e2b/bench.ts'
import { runElsewhere } from './run-elsewhere.ts'

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

let bench: E2bBench
beforeAll(async () => {
  bench = await openE2bBench()
})
afterAll(() => bench.close())

const run = (args: readonly string[], given: Readonly<Record<string, string>>) =>
  runElsewhere(args, given, bench.runtimeRoot)
const variables = () => ({ E2B_API_KEY: MARKER_KEY, E2B_API_URL: bench.server.apiUrl, E2B_SANDBOX_URL: bench.server.sandboxUrl }) // prettier-ignore

test('lists and reaps what another host made, page by page', async () => {
  const provider = bench.provider()
  const made = await Promise.all(['a', 'b', 'c'].map((job) => provider.create({ labels: { job } })))
  const listed = await run(['sandbox', 'list', '--backend', 'e2b', '--json'], variables())
  const ids = (JSON.parse(listed.out) as { readonly id: string }[]).map(({ id }) => id)
  expect(ids.sort()).toEqual(made.map(({ id }) => id).sort())
  const reaped = await run(['sandbox', 'reap', '--backend', 'e2b', '--older-than', '1ms', '--json'], variables())
  expect((JSON.parse(reaped.out) as string[]).sort()).toEqual(ids)
  expect(bench.server.running()).toEqual([])
  for (const sandbox of made) await expect.poll(() => sandbox.status, { timeout: 30_000 }).toBe('destroyed')
})

test('names the variable that it wants, and prints no key', async () => {
  const without = await run(['sandbox', 'list', '--backend', 'e2b'], {})
  expect(without.code).not.toBe(0)
  expect(without.err).toContain('E2B_API_KEY')
  const wrong = await run(['sandbox', 'list', '--backend', 'e2b'], { ...variables(), E2B_API_KEY: 'e2b_marker-of-another-key' }) // prettier-ignore
  expect(wrong.err).toContain('Invalid API key')
  expect(wrong.out + wrong.err).not.toContain('marker')
})
