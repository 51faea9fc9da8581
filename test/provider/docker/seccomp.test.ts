/** The profile of system calls, next to the engine's own: what that closes is closed here too, tried call by call. */
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { dockerSeccompProfile } from '../../../provider/backends/docker-seccomp.ts'
import { SYSTEM_CALLS } from '../../../provider/backends/syscalls.ts'
import { describeNeeding } from '../needs.ts'
import { startDaemon, type TestDaemon } from './daemon.ts'

const EPERM = 1
const ENOSYS = 38
/** Newer than old engines, which answer ENOSYS for whatever they don't know; later ones allow them: cachestat, fchmodat2, map_shadow_stack, futex_*, mseal, *xattrat. */
const NEWER = new Set([451, 452, 453, 454, 455, 456, 462, 463, 464, 465, 466])

describe('the profile', () => {
  const profile = dockerSeccompProfile('x64')
  const allowed = profile.syscalls
    .filter(({ action, args }) => action === 'SCMP_ACT_ALLOW' && args === undefined)
    .flatMap(({ names }) => names)

  test('denies whatever it does not name, on one processor and without its 32-bit calls', () => {
    expect(profile.defaultAction).toBe('SCMP_ACT_ERRNO')
    expect(profile.architectures).toEqual(['SCMP_ARCH_X86_64'])
    expect(dockerSeccompProfile('arm64').architectures).toEqual(['SCMP_ARCH_AARCH64'])
  })

  test('names no call twice', () => {
    expect(allowed.filter((name, index) => allowed.indexOf(name) !== index)).toEqual([])
  })

  test('allows none of what the process backend forbids, but for ioctl, whose terminals a container has not', () => {
    expect(SYSTEM_CALLS.filter((name) => allowed.includes(name) && name !== 'ioctl')).toEqual([])
  })

  test.each([
    'socketcall',
    'io_uring_setup',
    'keyctl',
    'add_key',
    'request_key',
    'userfaultfd',
    'bpf',
    'perf_event_open',
    'ptrace',
    'mount',
    'unshare',
    'setns',
    'clone3',
  ])('does not allow %s', (name) => {
    expect(allowed).not.toContain(name)
  })
})

describeNeeding(['root', 'namespaces', 'docker', 'busybox', 'gcc'], 'the profile beside the engine’s own', () => {
  let daemon: TestDaemon
  let folder: string
  let engines: Results
  let ours: Results

  beforeAll(async () => {
    folder = mkdtempSync('/tmp/sps-')
    chmodSync(folder, 0o755)
    execFileSync('gcc', [
      '-O1',
      '-Wall',
      '-Wextra',
      '-Werror',
      '-static',
      '-o',
      path.join(folder, 'syscalls'),
      path.join(import.meta.dirname, 'syscalls.c'),
    ])
    daemon = await startDaemon()
    engines = await tryAll(daemon, folder, [])
    ours = await tryAll(daemon, folder, [
      `seccomp=${JSON.stringify(dockerSeccompProfile(process.arch === 'arm64' ? 'arm64' : 'x64'))}`,
    ])
  }, 120_000)

  afterAll(async () => {
    await daemon.close()
    rmSync(folder, { recursive: true })
  }, 60_000)

  test('every call that the engine’s denies is denied', () => {
    const denied = (errno: number | undefined): boolean => errno === EPERM || errno === ENOSYS || (errno ?? 0) > 1000
    const weaker = [...engines.calls].filter(
      ([number, errno]) => denied(errno) && !(errno === ENOSYS && NEWER.has(number)) && !denied(ours.calls.get(number)),
    )
    expect(weaker).toEqual([])
    // A list that is empty would pass.
    expect([...engines.calls.values()].filter(denied).length).toBeGreaterThan(50)
    expect([...ours.calls.values()].filter((errno) => !denied(errno)).length).toBeGreaterThan(200)
  })

  test('every socket that the engine’s denies is denied, and AF_VSOCK, netlink other than routes, raw and ICMP sockets too', () => {
    const opened = [...ours.sockets].filter(([, errno]) => errno === 0).map(([kind]) => kind)
    expect(opened.filter((kind) => engines.sockets.get(kind) !== 0)).toEqual([])
    expect(opened.sort()).toEqual(
      [
        '1 1 0',
        '1 1 1',
        '1 2 0',
        '1 2 1',
        '1 3 0',
        '1 3 1',
        '1 5 0',
        '1 5 1',
        '10 1 0',
        '10 1 6',
        '10 2 0',
        '10 2 17',
        '16 2 0',
        '16 3 0',
        '2 1 0',
        '2 1 6',
        '2 2 0',
        '2 2 17',
      ].sort(),
    )
  })
})

interface Results {
  readonly calls: ReadonlyMap<number, number>
  readonly sockets: ReadonlyMap<string, number>
}

async function tryAll({ docker }: TestDaemon, folder: string, securityOptions: readonly string[]): Promise<Results> {
  const container = await docker.createContainer({
    Image: 'busybox',
    Cmd: ['/probe/syscalls'],
    User: '10001:10001',
    HostConfig: {
      NetworkMode: 'none',
      CapDrop: ['ALL'],
      Binds: [`${folder}:/probe:ro`],
      SecurityOpt: ['no-new-privileges:true', ...securityOptions],
    },
  })
  await container.start()
  await container.wait()
  const printed = (await container.logs({ stdout: true, stderr: true, follow: false })).toString('latin1')
  await container.remove()
  const calls = new Map<number, number>()
  const sockets = new Map<string, number>()
  for (const [, number, errno] of printed.matchAll(/call (\d+) (-?\d+)/g)) calls.set(Number(number), Number(errno))
  for (const [, kind = '', errno] of printed.matchAll(/socket (\d+ \d+ \d+) (\d+)/g)) sockets.set(kind, Number(errno))
  if (calls.size !== 471) throw new Error(`the probe tried ${calls.size} calls`)
  return { calls, sockets }
}
