import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ownerOfThisProcess, stateOfOwner } from '../../provider/owner.ts'
import { otherProcess } from './other-process.ts'

describe('whether the owner of a sandbox lives', () => {
  let other: Awaited<ReturnType<typeof otherProcess>>
  beforeAll(async () => {
    other = await otherProcess()
  })
  afterAll(() => other.end())

  /** The owner with one of `machine.boot.namespace.pid.start` replaced. */
  const changed = (index: number, text: string): string => ownerOfThisProcess().split('.').with(index, text).join('.')

  test('this process does', async () => {
    expect(await stateOfOwner(ownerOfThisProcess())).toBe('alive')
  })

  test('a process of the same number that began at another time does not count', async () => {
    expect(await stateOfOwner(changed(4, '1'))).toBe('gone')
  })

  test('nothing lives that began before the machine did', async () => {
    expect(await stateOfOwner(changed(1, 'deadbeef'))).toBe('gone')
  })

  test.each([
    ['of another machine', () => changed(0, 'elsewhere')],
    ['of another container', () => changed(2, '1')],
    ['without a number', () => changed(3, 'x')],
    ['that nobody wrote down', () => undefined],
    ['of an unknown form', () => 'somebody'],
  ])('nothing is concluded of an owner %s', async (_name, owner) => {
    expect(await stateOfOwner(owner())).toBe('unknown')
  })

  test('another process lives until it ends', async () => {
    expect(await stateOfOwner(other.owner)).toBe('alive')
    await other.end()
    expect(await stateOfOwner(other.owner)).toBe('gone')
  })

  test('it is fit for a label', () => {
    expect(ownerOfThisProcess()).toMatch(/^[A-Za-z0-9.-]{1,128}$/)
  })
})
