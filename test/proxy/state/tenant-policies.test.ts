/** Policies of tenants in the state folder: what survives, what is seen by others, and that nothing which can't be read widens anything. */
import { mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { systemClock } from '../../../proxy/clock.ts'
import { openTenantPolicies, type TenantPolicies, type TenantPolicy } from '../../../proxy/state/tenant-policies.ts'

let folder: string
const opened: TenantPolicies[] = []
beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), 'policies-')), 'policies')
})
afterEach(() => {
  for (const policies of opened.splice(0)) policies.close()
  rmSync(join(folder, '..'), { recursive: true, force: true })
})

async function open(onFault?: (message: string) => void): Promise<TenantPolicies> {
  const policies = await openTenantPolicies(folder, systemClock, onFault)
  opened.push(policies)
  return policies
}

const policyOf = (tenant: string, ...allowedHosts: string[]): TenantPolicy => ({
  tenant,
  policy: { kind: 'static', allowedHosts },
  changed_at: '2026-01-31T12:00:00.000Z',
  author: 'alice',
})
const files = (): string[] => readdirSync(folder).map((name) => join(folder, name))

test('what was put is there after a restart, whatever the tenant is called, and nobody else may read it', async () => {
  const names = ['acme', '../../etc/passwd', 'a/b', '..', 'x'.repeat(100), 'ü\u0000']
  const first = await open()
  for (const name of names) await first.put(policyOf(name, 'a.example'))
  const second = await open()
  expect(
    second
      .list()
      .map(({ tenant }) => tenant)
      .sort(),
  ).toEqual(names.toSorted())
  expect(files().map((file) => statSync(file).mode & 0o777)).toEqual(names.map(() => 0o600))
  await second.remove('..')
  expect(second.get('..')).toBeUndefined()
  expect(files()).toHaveLength(names.length - 1)
})

test('a file that has been the same for long is noticed when another takes its place, of the same length too', async () => {
  let nowMs = 1_000_000
  const policies = await openTenantPolicies(folder, { wallMs: () => Date.now(), monotonicMs: () => nowMs })
  opened.push(policies)
  await policies.put(policyOf('acme', 'a.example'))
  await policies.put(policyOf('other', 'o.example'))
  for (let looks = 0; looks < 4; looks++) {
    expect(policies.look()).toBe(true)
    nowMs += 3000
  }
  const kept = policies.get('acme')
  // Another tenant's change is no reason to take this one apart.
  await policies.put(policyOf('other', 'p.example'))
  expect(policies.look()).toBe(true)
  expect(policies.get('acme')).toBe(kept)
  const [file = ''] = files().filter((path) => readFileSync(path, 'utf8').includes('"acme"'))
  writeFileSync(join(folder, '..', 'next'), readFileSync(file, 'utf8').replace('a.example', 'z.example'))
  renameSync(join(folder, '..', 'next'), file)
  expect(policies.look()).toBe(true)
  expect(policies.get('acme')?.policy).toEqual({ kind: 'static', allowedHosts: ['z.example'] })
})

test('another process sees a change, and a removal', async () => {
  const [one, other] = [await open(), await open()]
  const told: string[] = []
  other.onChange((tenants) => told.push(...tenants))
  await one.put(policyOf('acme', 'a.example'))
  await expect.poll(() => other.get('acme')?.policy).toEqual({ kind: 'static', allowedHosts: ['a.example'] })
  await one.put(policyOf('acme', 'b.example'))
  await expect.poll(() => other.get('acme')?.policy).toEqual({ kind: 'static', allowedHosts: ['b.example'] })
  await one.remove('acme')
  await expect.poll(() => other.get('acme')).toBeUndefined()
  expect(new Set(told)).toEqual(new Set(['acme']))
})

test.each([
  ['no JSON', () => '{'],
  ['no policy', () => '{"tenant":"acme","policy":{"kind":"allow"},"changed_at":"","author":""}'],
  ['an unknown member', (text: string) => text.replace('{', '{"more":1,')],
  ['the policy of another tenant', (text: string) => text.replace('acme', 'evil')],
  ['nothing', () => ''],
])('a file with %s stops the start, and later changes nothing', async (_what, spoil) => {
  const faults: string[] = []
  const running = await open((message) => faults.push(message))
  await running.put(policyOf('acme', 'a.example'))
  const [file = ''] = files()
  writeFileSync(`${file}.new`, spoil(readFileSync(file, 'utf8')))
  renameSync(`${file}.new`, file)
  await expect(open()).rejects.toMatchObject({ code: 'SALLYPORT_STATE_UNUSABLE' })
  await expect.poll(() => faults.length).toBe(1)
  expect(running.get('acme')).toMatchObject({ policy: { allowedHosts: ['a.example'] } })
})

test('a folder that is gone takes no policy along', async () => {
  const running = await open()
  await running.put(policyOf('acme', 'a.example'))
  rmSync(folder, { recursive: true })
  await new Promise((resolve) => setTimeout(resolve, 700))
  expect(running.get('acme')).toBeDefined()
  await running.put(policyOf('other', 'b.example'))
  await new Promise((resolve) => setTimeout(resolve, 700))
  expect(running.list()).toHaveLength(2)
  expect((await open()).list()).toHaveLength(2)
  expect(readdirSync(join(folder, '..'))).toEqual(['policies'])
})
