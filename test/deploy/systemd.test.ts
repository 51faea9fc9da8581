/** The unit of systemd: systemd understands it, and scores it as its documentation says. */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { describeNeeding } from '../provider/needs.ts'

const FOLDER = path.resolve(import.meta.dirname, '../../deploy/systemd')
const UNIT = path.join(FOLDER, 'sallyport.service')
const unit = fs.readFileSync(UNIT, 'utf8')

/** Other versions of systemd count a little otherwise. */
const ROOM = 0.4

describeNeeding(['systemd'], 'the unit of systemd', () => {
  const analyze = (...args: readonly string[]) => spawnSync('systemd-analyze', args, { encoding: 'utf8' })

  test('is as closed as its documentation says', () => {
    const documented = Number(
      /says \*\*([\d.]+)\*\*/.exec(fs.readFileSync(path.join(FOLDER, 'README.md'), 'utf8'))?.[1],
    )
    const { stdout } = analyze('security', '--offline=true', UNIT)
    const found = Number(/exposure level for sallyport\.service: ([\d.]+)/.exec(stdout)?.[1])
    expect(Math.abs(found - documented)).toBeLessThanOrEqual(ROOM)
    expect(found).toBeLessThan(2)
  })

  test('has no line that systemd does not understand', () => {
    const { stderr } = analyze('verify', '--man=no', UNIT)
    const lines = stderr.split('\n').filter((line) => line.includes('sallyport.service'))
    // The binary is not installed where this is tested.
    expect(lines.filter((line) => !/sallyport is not executable/.test(line))).toEqual([])
  })
})

test('the unit stops later than the gateway has drained', () => {
  expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)?.[1])).toBeGreaterThan(30)
})
