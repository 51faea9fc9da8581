import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { kvmGroups } from '../../../provider/backends/microvm/kvm-access.ts'

const UID = 64_000
const GID = 64_100

let folder: string
let device: string
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'sallyport-kvm-'))
  device = path.join(folder, 'kvm')
  writeFileSync(device, '')
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

describe.skipIf(process.getuid?.() !== 0)('a machine that runs as a user of its own', () => {
  test.each([
    ['root alone', 0o600, 0, undefined],
    ['the group of root', 0o660, 0, undefined],
    ['a group that may only read', 0o640, GID, undefined],
    ['a group', 0o660, GID, [GID]],
    ['everybody', 0o666, 0, []],
  ])('where the device is for %s', (_name, mode, gid, groups) => {
    chownSync(device, 0, gid)
    chmodSync(device, mode)
    expect(kvmGroups(device, UID)).toEqual(groups)
  })
})

test('a machine that runs as whoever starts it needs no group; where there is no device it has none', () => {
  chmodSync(device, 0o600)
  expect(kvmGroups(device, undefined)).toEqual([])
  expect(kvmGroups(path.join(folder, 'none'), UID)).toBeUndefined()
})
