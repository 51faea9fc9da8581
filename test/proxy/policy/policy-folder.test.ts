/** How a folder with many files is gone through: in steps, and on whatever machine at least one changed file at a look. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { systemClock } from '../../../proxy/clock.ts'
import { FileLayers } from '../../../proxy/policy/tenant-files/file-layers.ts'
import { policyFolder, type PolicyPlace } from '../../../proxy/policy/tenant-files/policy-folder.ts'

const FILES = 300
let root: string
let folder: string
let place: PolicyPlace
let read: unknown[]
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'sallyport-folder-'))
  folder = join(root, 'tenants')
  mkdirSync(folder, { mode: 0o755 })
  for (let at = 0; at < FILES; at++) put(`t${at}`, 'first.example.test')
  read = []
  const layers = new FileLayers({
    // Every policy is read and found wanting: what is looked at here is which files are read.
    *check(policy) {
      yield
      read.push(policy)
      return { ok: false, faults: [] }
    },
    onFault: () => undefined,
  })
  place = policyFolder(folder, layers, systemClock)
})
afterEach(() => {
  vi.restoreAllMocks()
  place.close()
  rmSync(root, { recursive: true, force: true })
})

test('a look gives way at each file, not only where one is read', async () => {
  await goThrough(true)
  expect(read).toHaveLength(FILES)
  // Without a word from the system so many are looked at for changes, in turn.
  expect(await goThrough(false)).toBeGreaterThanOrEqual(200)
  expect(read).toHaveLength(FILES)
})

test('however slow the machine is, each look takes one of the files that changed', async () => {
  await goThrough(true)
  for (const at of [7, 130, 299]) put(`t${at}`, 'second.example.test')
  const now = performance.now.bind(performance)
  let late = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now() + (late += 1000))
  // The first look sees that they changed, each further one takes one that has rested.
  await goThrough(false)
  for (const expected of [1, 2, 3, 3]) {
    await goThrough(false)
    expect(read.length - FILES).toBe(expected)
  }
})

function put(tenant: string, host: string): void {
  writeFileSync(join(folder, `${tenant}.json`), JSON.stringify({ kind: 'static', allowedHosts: [host] }), {
    mode: 0o644,
  })
}

/** One look; how often it would have let others go on. */
async function goThrough(isFirst: boolean): Promise<number> {
  const steps = place.look(isFirst)
  for (let count = 0; ; count++) {
    const step = steps.next()
    if (step.done === true) return count
    await step.value
  }
}
