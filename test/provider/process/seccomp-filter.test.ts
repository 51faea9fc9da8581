/** What the filter answers to each call, on both processors: the numbers it is made of, and the verdicts. */
import { spawnSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { assemble } from '../../../provider/backends/bpf-assembler.ts'
import { seccompFilter } from '../../../provider/backends/seccomp-filter.ts'
import {
  AUDIT_ARCHITECTURES,
  FIRST_UNKNOWN,
  type FilterArchitecture,
  filterArchitecture,
  numberOf,
  SYSTEM_CALLS,
  type SystemCall,
} from '../../../provider/backends/syscalls.ts'
import { runBpf } from './bpf.ts'

const VERDICTS: Readonly<Record<number, string>> = {
  0x7fff0000: 'allow',
  0x80000000: 'kill',
  0x00050001: 'EPERM',
  0x00050026: 'ENOSYS',
  0x0005005d: 'EPROTONOSUPPORT',
  0x00050061: 'EAFNOSUPPORT',
}

describe.each(['x64', 'arm64'] as const)('the filter for %s', (processor: FilterArchitecture) => {
  const program = seccompFilter(processor)
  const architecture = AUDIT_ARCHITECTURES[processor]
  const verdict = (call: SystemCall | number, ...args: readonly (number | bigint)[]): string => {
    const number = typeof call === 'number' ? call : numberOf(call, processor)
    if (number === undefined) return 'no such call'
    const answer = runBpf(program, { number, architecture, args })
    return VERDICTS[answer] ?? answer.toString(16)
  }

  test.each<[string, SystemCall, readonly (number | bigint)[], string]>([
    ['unix sockets', 'socket', [1, 1, 0], 'allow'],
    ['TCP', 'socket', [2, 1, 0], 'allow'],
    ['TCP with flags in the type', 'socket', [2, 1 | 0o2000000 | 0o4000, 6], 'allow'],
    ['UDP over IPv6', 'socket', [10, 2, 17], 'allow'],
    ['the list of interfaces', 'socket', [16, 3, 0], 'allow'],
    ['netlink to the packet filter', 'socket', [16, 3, 12], 'EPROTONOSUPPORT'],
    ['netlink to diagnostics of sockets', 'socket', [16, 3, 4], 'EPROTONOSUPPORT'],
    ['raw IPv4', 'socket', [2, 3, 1], 'EPERM'],
    ['raw IPv6', 'socket', [10, 3, 58], 'EPERM'],
    ['raw IPv4 with flags', 'socket', [2, 3 | 0o2000000, 255], 'EPERM'],
    ['old packet sockets', 'socket', [2, 10, 3], 'EPERM'],
    ['ping sockets', 'socket', [2, 2, 1], 'EPROTONOSUPPORT'],
    ['SCTP', 'socket', [2, 1, 132], 'EPROTONOSUPPORT'],
    ['AF_VSOCK', 'socket', [40, 1, 0], 'EAFNOSUPPORT'],
    ['AF_VSOCK with bits that the kernel does not read', 'socket', [(1n << 32n) | 40n, 1, 0], 'EAFNOSUPPORT'],
    ['AF_INET with bits that the kernel does not read', 'socket', [(7n << 32n) | 2n, 3, 0], 'EPERM'],
    ['AF_PACKET', 'socket', [17, 3, 0x300], 'EAFNOSUPPORT'],
    ['AF_ALG', 'socket', [38, 5, 0], 'EAFNOSUPPORT'],
    ['AF_XDP', 'socket', [44, 3, 0], 'EAFNOSUPPORT'],
    ['AF_KEY', 'socket', [15, 3, 2], 'EAFNOSUPPORT'],
    ['AF_BLUETOOTH', 'socket', [31, 3, 1], 'EAFNOSUPPORT'],
    ['AF_UNSPEC', 'socket', [0, 1, 0], 'EAFNOSUPPORT'],
    ['a family of the future', 'socket', [99, 1, 0], 'EAFNOSUPPORT'],
    ['a pair of unix sockets', 'socketpair', [1, 1, 0], 'allow'],
    ['a pair of TIPC sockets', 'socketpair', [30, 1, 0], 'EAFNOSUPPORT'],
    ['fork', 'clone', [17], 'allow'],
    ['a thread', 'clone', [0x3d0f00], 'allow'],
    ['a user namespace', 'clone', [0x10000011], 'EPERM'],
    ['a network namespace', 'clone', [0x40000011], 'EPERM'],
    ['clone3, whose flags can not be read', 'clone3', [0, 88], 'ENOSYS'],
    ['unshare of descriptors', 'unshare', [0x400], 'allow'],
    ['unshare of mounts', 'unshare', [0x20000], 'EPERM'],
    ['unshare of time', 'unshare', [0x80], 'EPERM'],
    ['a terminal’s size', 'ioctl', [0, 0x5413], 'allow'],
    ['typing into a terminal', 'ioctl', [0, 0x5412], 'EPERM'],
    ['typing, with bits that the kernel does not read', 'ioctl', [0, (1n << 32n) | 0x5412n], 'EPERM'],
    ['pasting on a console', 'ioctl', [0, 0x541c], 'EPERM'],
    ['io_uring', 'io_uring_setup', [8, 0], 'ENOSYS'],
  ])('%s', (_what, call, args, expected) => {
    expect(verdict(call, ...args)).toBe(expected)
  })

  test('every call by name is refused, except those that depend on what is asked', () => {
    const depends: readonly string[] = ['socket', 'socketpair', 'clone', 'unshare', 'ioctl']
    for (const call of SYSTEM_CALLS) {
      const seen = verdict(call, 0)
      if (depends.includes(call)) expect(seen, call).toMatch(/allow|EAFNOSUPPORT/)
      else expect(['EPERM', 'ENOSYS', 'no such call'], call).toContain(seen)
    }
  })

  test('every other call is allowed, up to the last that was known, and none after', () => {
    const named = new Set(SYSTEM_CALLS.map((call) => numberOf(call, processor)))
    for (let number = 0; number < FIRST_UNKNOWN + 200; number += 1) {
      if (!named.has(number)) expect(verdict(number), String(number)).toBe(number < FIRST_UNKNOWN ? 'allow' : 'ENOSYS')
    }
    expect(verdict(0xffffffff)).toBe('ENOSYS')
  })

  test('calls of another architecture end the process', () => {
    for (const other of [0x40000003, 0x40000028, 0xc00000b7, 0xc000003e]) {
      if (other !== architecture) expect(VERDICTS[runBpf(program, { number: 39, architecture: other })]).toBe('kill')
    }
  })

  if (processor === 'x64') {
    test('x32 calls, also of what is allowed', () => {
      expect(verdict(0x40000000 + 39)).toBe('ENOSYS')
      expect(verdict(0x40000000 + 41, 40, 1, 0)).toBe('ENOSYS')
    })
  }

  test('the numbers are those of the kernel’s headers', (context) => {
    const header = processor === 'x64' ? '<asm/unistd_64.h>' : '<asm-generic/unistd.h>'
    const { status, stdout } = spawnSync('gcc', ['-E', '-dM', '-'], {
      // The generic table needs to be told that it is for 64 bits.
      input: `#define __BITS_PER_LONG 64\n#define __ARCH_WANT_RENAMEAT\n#include ${header}\n`,
      encoding: 'utf8',
    })
    if (status !== 0) {
      if (process.env['CI'] === 'true' && process.arch === processor)
        throw new Error('gcc or the headers of the kernel are missing')
      context.skip('gcc or the headers of the kernel are missing')
    }
    const known = new Map(
      [...stdout.matchAll(/^#define __NR_(\w+) (\d+)$/gm)].map(([, name, number]) => [name, Number(number)]),
    )
    // What is newer than the headers is not in them.
    const compared = SYSTEM_CALLS.filter((call) => known.has(call))
    for (const call of compared) expect(numberOf(call, processor), call).toBe(known.get(call))
    expect(compared.length).toBeGreaterThan(45)
  })
})

test('other processors have no filter', () => {
  expect(['x64', 'arm64', 'ia32', 'riscv64'].map(filterArchitecture)).toEqual(['x64', 'arm64', undefined, undefined])
})

test('a jump to a label that is not ahead is a fault of the author', () => {
  expect(() => assemble([{ label: 'back' }, { when: 'equal', value: 1, goto: 'back' }])).toThrow(
    'no way to the label back',
  )
  expect(() => assemble([{ when: 'equal', value: 1, goto: 'nowhere' }])).toThrow('nowhere')
  const far = Array.from({ length: 256 }, () => ({ answer: 0 }))
  expect(() => assemble([{ when: 'equal', value: 1, goto: 'far' }, ...far, { label: 'far' }, { answer: 1 }])).toThrow(
    'far',
  )
})
