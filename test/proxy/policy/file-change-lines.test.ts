/** That the audit log says what files changed in the order in which it came into force. */
import { expect, test } from 'vitest'
import { writeInOrder } from '../../../proxy/policy/file-change-lines.ts'
import type { TenantLayer } from '../../../proxy/policy/kept-tenants.ts'

const layerOf = (...allowedHosts: string[]): TenantLayer => ({
  kind: 'static',
  allowedHosts,
  deniedHosts: [],
  mode: 'enforce',
})
const longLayer = (seed: number) =>
  layerOf(...Array.from({ length: 50_000 }, (_none, at) => `h${at}-${seed}.example.test`))

test('a short change does not overtake a long one that came into force before it, and both leave turns to others', async () => {
  const written: string[] = []
  const tell = writeInOrder(({ tenant, detail }) => written.push(`${tenant}: ${detail}`))
  let turns = 0
  const count = () => {
    turns++
    if (written.length < 4) setImmediate(count)
  }
  setImmediate(count)
  tell({ tenant: 'long', before: longLayer(1), after: longLayer(2), version: '2' })
  tell({ tenant: 'short', before: undefined, after: layerOf('a.example.test'), version: '1' })
  await new Promise((resolve) => setImmediate(resolve))
  tell({ tenant: 'long', before: longLayer(2), after: layerOf('b.example.test'), version: '3' })
  tell({ tenant: 'short', before: layerOf('a.example.test'), after: undefined, version: undefined })
  await expect.poll(() => written, { timeout: 60_000 }).toHaveLength(4)
  expect(written).toEqual([
    'long: 50000 appear, 50000 vanish',
    'short: 1 appear, 0 vanish, kind none to static, mode none to enforce',
    'long: 1 appear, 50000 vanish',
    'short: 0 appear, 1 vanish, kind static to none, mode enforce to none',
  ])
  expect(turns).toBeGreaterThan(3)
  tell({ tenant: 'later', before: undefined, after: { kind: 'allow-all', mode: 'report' }, version: '4' })
  await expect.poll(() => written).toHaveLength(5)
}, 90_000)

test('a line shows so many entries and counts all', async () => {
  const lines: { readonly added: readonly string[]; readonly detail: string }[] = []
  writeInOrder((line) => lines.push(line))({
    tenant: 'acme',
    before: undefined,
    after: {
      ...layerOf(...Array.from({ length: 20 }, (_none, at) => `a${at}.test`)),
      deniedHosts: Array.from({ length: 20 }, (_none, at) => `d${at}.test`),
    } as TenantLayer,
    version: '1',
  })
  await expect.poll(() => lines).toHaveLength(1)
  expect(lines[0]?.added).toHaveLength(32)
  expect(lines[0]?.added.slice(18, 22)).toEqual(['a18.test', 'a19.test', '!d0.test', '!d1.test'])
  expect(lines[0]?.detail).toMatch(/^40 appear, 0 vanish/)
})
