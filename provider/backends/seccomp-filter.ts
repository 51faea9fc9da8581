/**
 * Which system calls a sandboxed process may make: what namespaces do not confine is closed here.
 *
 * A network namespace confines no AF_VSOCK; a user namespace gives capabilities to whoever makes one; neither keeps a process from io_uring,
 * kernel keys or another process's memory.
 */
import { assemble, type Line } from './bpf-assembler.ts'
import { AUDIT_ARCHITECTURES, FIRST_UNKNOWN, type FilterArchitecture, numberOf, type SystemCall } from './syscalls.ts'

/** Offsets in `struct seccomp_data`. Both processors are little endian: the low half of an argument comes first. */
const NUMBER = 0
const ARCHITECTURE = 4
const argument = (index: number): number => 16 + 8 * index

/** Answers of `linux/seccomp.h`, with errno values of `asm-generic/errno.h`. */
const ALLOW = 0x7fff0000
const KILL_PROCESS = 0x80000000
const fail = (errno: number): number => 0x00050000 + errno
const EPERM = fail(1)
const ENOSYS = fail(38)
const EPROTONOSUPPORT = fail(93)
const EAFNOSUPPORT = fail(97)

/** Set in the number of an x32 call, which would pass a list of x86-64 numbers. */
const X32_BIT = 0x40000000

/** CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const NEW_NAMESPACES =
  0x00000080 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

const AF_UNIX = 1
const AF_INET = 2
const AF_INET6 = 10
const AF_NETLINK = 16
const NETLINK_ROUTE = 0
const SOCK_STREAM = 1
const SOCK_DGRAM = 2
/** The rest of the type are flags such as SOCK_CLOEXEC. */
const SOCKET_TYPE_BITS = 0xf
const IPPROTO_TCP = 6
const IPPROTO_UDP = 17
/** They push characters into the terminal as if somebody typed them. */
const TIOCSTI = 0x5412
const TIOCLINUX = 0x541c

/** Namespaces and mounts, besides what `clone` and `unshare` are asked for by flags. */
const WALLS: readonly SystemCall[] = [
  'setns', 'mount', 'umount2', 'pivot_root', 'chroot', 'open_tree', 'open_tree_attr', 'move_mount', 'mount_setattr', 'fsopen', 'fsconfig', 'fsmount', 'fspick',
] // prettier-ignore

/** Calls that no command needs, and that reach beyond the sandbox or into kernel code that few people look at. */
const FORBIDDEN: readonly SystemCall[] = [
  // Other processes' memory and descriptors. The worker is one of them.
  'ptrace', 'process_vm_readv', 'process_vm_writev', 'process_madvise', 'pidfd_getfd', 'kcmp',
  // Keys of the user's keyrings, which no namespace parts.
  'keyctl', 'add_key', 'request_key',
  // Programs and counters inside the kernel, and faults handled by the program, which make its races easy to win.
  'bpf', 'perf_event_open', 'userfaultfd',
  // Files by handle pass over every mount's edge.
  'open_by_handle_at', 'name_to_handle_at', 'fanotify_init', 'lookup_dcookie',
  // The machine as a whole: its log, clock, name, modules, disks.
  'syslog', 'clock_settime', 'settimeofday', 'clock_adjtime', 'adjtimex', 'sethostname', 'setdomainname', 'init_module', 'finit_module', 'delete_module',
  'kexec_load', 'kexec_file_load', 'reboot', 'swapon', 'swapoff', 'acct', 'quotactl', 'quotactl_fd', 'nfsservctl', 'iopl', 'ioperm', 'vhangup', 'uselib',
] // prettier-ignore

/**
 * Calls that look as if the kernel did not have them, so that programs fall back to what can be judged: `clone3` keeps its flags in memory where a
 * filter can't look, and io_uring makes calls that no filter sees.
 */
const ABSENT: readonly SystemCall[] = [
  'clone3',
  'io_uring_setup',
  'io_uring_enter',
  'io_uring_register',
  'statmount',
  'listmount',
  'listns',
  'modify_ldt',
]

/**
 * The filter, as bubblewrap's `--seccomp` takes it.
 *
 * Sockets are an allowlist: unix; TCP and UDP over IPv4 and IPv6; and NETLINK_ROUTE, with which `getifaddrs()` lists the sandbox's own loopback
 * (servers print it, Node's `os.networkInterfaces()` throws without), and which changes nothing without a capability that nobody inside has.
 * A call of another architecture (32 bits) ends the process: its numbers mean other calls.
 *
 * `walls: 'open'` leaves namespaces and mounts alone, for another sandbox that builds its own wall behind this filter.
 */
export function seccompFilter(
  architecture: FilterArchitecture,
  { walls = 'shut' }: { readonly walls?: 'shut' | 'open' } = {},
): Buffer {
  const on = (call: SystemCall, goto: string): Line[] => {
    const value = numberOf(call, architecture)
    return value === undefined ? [] : [{ when: 'equal', value, goto }]
  }
  return assemble([
    { load: ARCHITECTURE },
    { when: 'equal', value: AUDIT_ARCHITECTURES[architecture], goto: 'native' },
    { answer: KILL_PROCESS },
    { label: 'native' },
    { load: NUMBER },
    ...(architecture === 'x64' ? [{ when: 'bitsSet', value: X32_BIT, goto: 'absent' } as const] : []),
    { when: 'atLeast', value: FIRST_UNKNOWN, goto: 'absent' },
    ...on('socket', 'socket'),
    ...on('socketpair', 'socketpair'),
    ...on('ioctl', 'ioctl'),
    ...(walls === 'open'
      ? []
      : [
          ...on('clone', 'namespaces'),
          ...on('unshare', 'namespaces'),
          ...WALLS.flatMap((call) => on(call, 'forbidden')),
        ]),
    ...FORBIDDEN.flatMap((call) => on(call, 'forbidden')),
    ...ABSENT.flatMap((call) => on(call, 'absent')),
    { answer: ALLOW },

    // Of both calls the flags are the first argument.
    { label: 'namespaces' },
    { load: argument(0) },
    { when: 'bitsSet', value: NEW_NAMESPACES, goto: 'forbidden' },
    { answer: ALLOW },

    // The kernel reads 32 bits of the request, so the filter does.
    { label: 'ioctl' },
    { load: argument(1) },
    { when: 'equal', value: TIOCSTI, goto: 'forbidden' },
    { when: 'equal', value: TIOCLINUX, goto: 'forbidden' },
    { answer: ALLOW },

    { label: 'socketpair' },
    { load: argument(0) },
    { when: 'equal', value: AF_UNIX, goto: 'allowed' },
    { answer: EAFNOSUPPORT },

    { label: 'socket' },
    { load: argument(0) },
    { when: 'equal', value: AF_UNIX, goto: 'allowed' },
    { when: 'equal', value: AF_INET, goto: 'internet' },
    { when: 'equal', value: AF_INET6, goto: 'internet' },
    { when: 'equal', value: AF_NETLINK, goto: 'netlink' },
    { answer: EAFNOSUPPORT },

    { label: 'internet' },
    { load: argument(1) },
    { and: SOCKET_TYPE_BITS },
    { when: 'equal', value: SOCK_STREAM, goto: 'protocol' },
    { when: 'equal', value: SOCK_DGRAM, goto: 'protocol' },
    { answer: EPERM },
    { label: 'protocol' },
    { load: argument(2) },
    { when: 'equal', value: 0, goto: 'allowed' },
    { when: 'equal', value: IPPROTO_TCP, goto: 'allowed' },
    { when: 'equal', value: IPPROTO_UDP, goto: 'allowed' },
    { answer: EPROTONOSUPPORT },

    { label: 'netlink' },
    { load: argument(2) },
    { when: 'equal', value: NETLINK_ROUTE, goto: 'allowed' },
    { answer: EPROTONOSUPPORT },

    { label: 'allowed' },
    { answer: ALLOW },
    { label: 'forbidden' },
    { answer: EPERM },
    { label: 'absent' },
    { answer: ENOSYS },
  ])
}
