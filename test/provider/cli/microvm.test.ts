/** `sallyport microvm snapshot`, and what `sallyport doctor` says where microVMs can't be had. */
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { makeStubs, type Stubs } from '../microvm/stubs.ts'
import { describeNeeding } from '../needs.ts'

vi.setConfig({ testTimeout: 120_000 })

describeNeeding(['root', 'bubblewrap'], 'the command line', () => {
  let stubs: Stubs
  beforeAll(() => {
    stubs = makeStubs()
    fs.mkdirSync(path.join(stubs.folder, 'run'), { mode: 0o700 })
  })
  afterAll(() => stubs.remove())

  const sallyport = async (...args: readonly string[]): Promise<{ code: number; out: string; err: string }> => {
    const bin = path.join(import.meta.dirname, '../../../provider/cli/bin.ts')
    const env = { PATH: process.env['PATH'], XDG_RUNTIME_DIR: path.join(stubs.folder, 'run') }
    return promisify(execFile)(process.execPath, [bin, ...args], { env, cwd: stubs.folder }).then(
      ({ stdout, stderr }) => ({ code: 0, out: stdout, err: stderr }),
      (error: unknown) => {
        const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string }
        return { code, out: stdout, err: stderr }
      },
    )
  }
  const snapshot = (...args: readonly string[]) =>
    sallyport('microvm', 'snapshot', '--images', stubs.folder, '--firecracker', path.join(stubs.folder, 'firecracker'), '--jailer', path.join(stubs.folder, 'jailer'), '--chroot-base', path.join(stubs.folder, 'jail'), '--kvm', '/dev/null', ...args) // prettier-ignore

  test('makes a snapshot of the size that is asked for', async () => {
    const { code, out, err } = await snapshot('--memory', '256', '--json', 'snap')
    expect([code, err]).toEqual([0, ''])
    expect(JSON.parse(out)).toMatchObject({ memoryMb: 256, cpus: 1, network: 'none', vmmVersion: '1.16.1' })
    expect(fs.readdirSync(path.join(stubs.folder, 'snap')).sort()).toEqual(['memory', 'snapshot.json', 'state'])
    expect(fs.readdirSync(path.join(stubs.folder, 'run/sallyport'))).toEqual([])
  })

  test('says what is wrong, and leaves no folder', async () => {
    expect(await snapshot('--memory', 'much', 'other')).toMatchObject({ code: 3, err: expect.stringContaining('--memory much') as string }) // prettier-ignore
    const { code, err } = await sallyport('microvm', 'snapshot', '--images', '/nowhere', '--kvm', '/dev/null', 'other')
    expect([code, err]).toEqual([1, expect.stringContaining('firecracker')])
    expect(fs.existsSync(path.join(stubs.folder, 'other'))).toBe(false)
  })

  test('doctor names all that is missing at once', async () => {
    const { out } = await sallyport('doctor', '--json')
    const findings = (JSON.parse(out) as { findings?: Finding[] }).findings ?? (JSON.parse(out) as Finding[])
    const finding = findings.find(({ name }) => name === 'sandboxes: self-hosted')
    for (const word of [...(fs.existsSync('/dev/kvm') ? [] : ['kvm']), 'firecracker', 'jailer', 'vmlinux', 'rootfs.squashfs']) expect(finding?.detail).toContain(word) // prettier-ignore
    expect(finding?.status).toBe('missing')
  })
})

interface Finding {
  readonly name: string
  readonly status: string
  readonly detail: string
}
