/** Numbers of the system calls that the filter knows by name, on the two processors it is made for. */

/** A processor, as Node names it. */
export type FilterArchitecture = 'x64' | 'arm64'

/** `AUDIT_ARCH_…` of `linux/audit.h`: what the kernel puts beside a system call's number. */
export const AUDIT_ARCHITECTURES: Readonly<Record<FilterArchitecture, number>> = { x64: 0xc000003e, arm64: 0xc00000b7 }

/**
 * The first number that was free when the table was written (Linux 6.18 ends with `listns`, 470). What came later is answered as by an older kernel,
 * since nobody has looked at it.
 */
export const FIRST_UNKNOWN = 471

/** From 424 on both processors count alike. */
const alike = (number: number): readonly [number, number] => [number, number]

/** `[x64, arm64]`; undefined where the processor has no such call. */
const NUMBERS = {
  acct: [163, 89],
  add_key: [248, 217],
  adjtimex: [159, 171],
  bpf: [321, 280],
  chroot: [161, 51],
  clock_adjtime: [305, 266],
  clock_settime: [227, 112],
  clone: [56, 220],
  clone3: alike(435),
  delete_module: [176, 106],
  fanotify_init: [300, 262],
  finit_module: [313, 273],
  fsconfig: alike(431),
  fsmount: alike(432),
  fsopen: alike(430),
  fspick: alike(433),
  init_module: [175, 105],
  io_uring_enter: alike(426),
  io_uring_register: alike(427),
  io_uring_setup: alike(425),
  ioctl: [16, 29],
  ioperm: [173, undefined],
  iopl: [172, undefined],
  kcmp: [312, 272],
  kexec_file_load: [320, 294],
  kexec_load: [246, 104],
  keyctl: [250, 219],
  listmount: alike(458),
  listns: alike(470),
  lookup_dcookie: [212, 18],
  modify_ldt: [154, undefined],
  mount: [165, 40],
  mount_setattr: alike(442),
  move_mount: alike(429),
  name_to_handle_at: [303, 264],
  nfsservctl: [180, 42],
  open_by_handle_at: [304, 265],
  open_tree: alike(428),
  open_tree_attr: alike(467),
  perf_event_open: [298, 241],
  pidfd_getfd: alike(438),
  pivot_root: [155, 41],
  process_madvise: alike(440),
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  ptrace: [101, 117],
  quotactl: [179, 60],
  quotactl_fd: alike(443),
  reboot: [169, 142],
  request_key: [249, 218],
  setdomainname: [171, 162],
  sethostname: [170, 161],
  setns: [308, 268],
  settimeofday: [164, 170],
  socket: [41, 198],
  socketpair: [53, 199],
  statmount: alike(457),
  swapoff: [168, 225],
  swapon: [167, 224],
  syslog: [103, 116],
  umount2: [166, 39],
  unshare: [272, 97],
  uselib: [134, undefined],
  userfaultfd: [323, 282],
  vhangup: [153, 58],
} as const satisfies Readonly<Record<string, readonly [number | undefined, number | undefined]>>

/** A system call that the filter knows. */
export type SystemCall = keyof typeof NUMBERS

/** Its number; undefined where the processor has no such call. */
export function numberOf(call: SystemCall, architecture: FilterArchitecture): number | undefined {
  return NUMBERS[call][architecture === 'x64' ? 0 : 1]
}

/** Every call of the table, for the test that compares it with the kernel's headers. */
export const SYSTEM_CALLS = Object.keys(NUMBERS) as readonly SystemCall[]

/** This machine's processor, of those that the table has; undefined where there is none, and so no sandbox. */
export function filterArchitecture(processor: string): FilterArchitecture | undefined {
  return processor === 'x64' || processor === 'arm64' ? processor : undefined
}
