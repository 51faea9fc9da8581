/**
 * Which system calls a container may make.
 *
 * An allowlist, as the engine's own default is, of what programs use and no more. Beyond that default it closes socket families that no network namespace
 * confines (AF_VSOCK above all, which engines before 24 leave open), raw and ICMP sockets, io_uring, other processes' memory, and 32-bit calls: their
 * numbers mean other calls, and `socketcall` hides its arguments from a filter.
 */
import type { FilterArchitecture } from './syscalls.ts'

/** As the engine reads it. */
export interface SeccompProfile {
  readonly defaultAction: 'SCMP_ACT_ERRNO'
  readonly architectures: readonly string[]
  readonly syscalls: readonly SeccompRule[]
}

/** Rules of one action; all of a rule's arguments must match. */
export interface SeccompRule {
  readonly names: readonly string[]
  readonly action: 'SCMP_ACT_ALLOW' | 'SCMP_ACT_ERRNO'
  readonly errnoRet?: number
  readonly args?: readonly SeccompArgument[]
}

interface SeccompArgument {
  readonly index: number
  readonly value: number
  readonly valueTwo?: number
  readonly op: 'SCMP_CMP_EQ' | 'SCMP_CMP_MASKED_EQ'
}

const ARCHITECTURES: Readonly<Record<FilterArchitecture, string>> = {
  x64: 'SCMP_ARCH_X86_64',
  arm64: 'SCMP_ARCH_AARCH64',
}

/** By subject, in the words of the kernel's manual. */
const ALLOWED: Readonly<Record<string, string>> = {
  files: `access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat
    fchmodat2 fchown fchownat fcntl fdatasync flock fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 ioctl lchown link linkat lseek lstat
    mkdir mkdirat mknod mknodat newfstatat open openat openat2 readahead readlink readlinkat rename renameat renameat2 rmdir stat statfs statx symlink
    symlinkat sync sync_file_range syncfs truncate umask unlink unlinkat utime utimensat utimes cachestat`,
  attributes: `fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr lremovexattr lsetxattr removexattr
    removexattrat setxattr setxattrat`,
  transfer: `pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readv sendfile splice tee vmsplice write writev pipe pipe2`,
  waiting: `epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 poll ppoll pselect6 select
    signalfd signalfd4 inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit`,
  memory: `brk madvise membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mprotect mremap mseal msync munlock munlockall munmap
    remap_file_pages map_shadow_stack`,
  processes: `execve execveat exit exit_group fork vfork wait4 waitid kill tgkill tkill pidfd_open pidfd_send_signal process_mrelease prctl arch_prctl
    set_tid_address set_robust_list get_robust_list set_thread_area get_thread_area rseq restart_syscall getcpu futex futex_requeue futex_wait futex_waitv
    futex_wake uretprobe`,
  identity: `capget capset getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getresgid getresuid getsid gettid getuid setfsgid setfsuid setgid
    setgroups setpgid setregid setresgid setresuid setreuid setsid setuid landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp`,
  limits: `getpriority getrlimit getrusage ioprio_get ioprio_set prlimit64 sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
    sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield setpriority
    setrlimit sysinfo times uname`,
  signals: `alarm pause rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack`,
  time: `clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create timer_delete timer_getoverrun timer_gettime
    timer_settime timerfd_create timerfd_gettime timerfd_settime getrandom`,
  sockets: `accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto setsockopt shutdown`,
  queues: `mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt
    shmget`,
}

/** Look as if the kernel lacked them, so that programs fall back: clone3 keeps its flags where no filter sees them. */
const ABSENT = [
  'clone3',
  'io_uring_setup',
  'io_uring_enter',
  'io_uring_register',
  'statmount',
  'listmount',
  'modify_ldt',
]
const ENOSYS = 38

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. (CLONE_NEWTIME shares its bit with the exit signal, and clone() ignores it.) */
const NEW_NAMESPACES = 0x7e020000

const AF_UNIX = 1
const AF_INET = 2
const AF_INET6 = 10
const AF_NETLINK = 16
const SOCK_STREAM = 1
const SOCK_DGRAM = 2
const SOCKET_TYPE_BITS = 0xf
const IPPROTO_ANY = 0
const IPPROTO_TCP = 6
const IPPROTO_UDP = 17
const NETLINK_ROUTE = 0

/** Personalities that change nothing but how the system names itself: PER_LINUX, UNAME26, PER_LINUX32, both, and "tell me". */
const PERSONALITIES = [0, 0x0020000, 0x0008, 0x0020008, 0xffffffff]

/** The profile, for the engine's `seccomp=` option. */
export function dockerSeccompProfile(architecture: FilterArchitecture): SeccompProfile {
  return {
    defaultAction: 'SCMP_ACT_ERRNO',
    architectures: [ARCHITECTURES[architecture]],
    syscalls: [
      { names: Object.values(ALLOWED).flatMap((names) => names.trim().split(/\s+/)), action: 'SCMP_ACT_ALLOW' },
      { names: ABSENT, action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
      allow('clone', { index: 0, value: NEW_NAMESPACES, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' }),
      ...PERSONALITIES.map((value) => allow('personality', equal(0, value))),
      allow('socketpair', equal(0, AF_UNIX)),
      allow('socket', equal(0, AF_UNIX)),
      // With it `getifaddrs()` lists interfaces; it changes nothing without a capability that nobody inside has.
      allow('socket', equal(0, AF_NETLINK), equal(2, NETLINK_ROUTE)),
      ...[AF_INET, AF_INET6].flatMap((family) => [
        ...[IPPROTO_ANY, IPPROTO_TCP].map((protocol) =>
          allow('socket', equal(0, family), ofType(SOCK_STREAM), equal(2, protocol)),
        ),
        ...[IPPROTO_ANY, IPPROTO_UDP].map((protocol) =>
          allow('socket', equal(0, family), ofType(SOCK_DGRAM), equal(2, protocol)),
        ),
      ]),
    ],
  }
}

function allow(name: string, ...args: readonly SeccompArgument[]): SeccompRule {
  return { names: [name], action: 'SCMP_ACT_ALLOW', args }
}

function equal(index: number, value: number): SeccompArgument {
  return { index, value, op: 'SCMP_CMP_EQ' }
}

/** Of a socket's second argument; the rest are flags such as SOCK_CLOEXEC. */
function ofType(type: number): SeccompArgument {
  return { index: 1, value: SOCKET_TYPE_BITS, valueTwo: type, op: 'SCMP_CMP_MASKED_EQ' }
}
