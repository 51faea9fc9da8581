/** Which of the host's files a sandbox sees besides its own: programs and what they need to run. An allowlist, so that nothing private is shown by being forgotten. */
import { lstatSync, readdirSync, readlinkSync } from 'node:fs'
import path from 'node:path'

/** One thing put in place inside. */
export type SystemEntry =
  | { readonly kind: 'bind'; readonly path: string }
  | { readonly kind: 'symlink'; readonly path: string; readonly target: string }

/** Folders of programs and libraries. The stores are Nix's and Guix's, whose programs are links into them. */
const PROGRAM_FOLDERS = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32', '/nix/store', '/gnu/store']

/**
 * What programs can't do without in `/etc`: where libraries are, certificates that are trusted, time zone, names of ports and types; each costs a start a
 * mount. Left out on purpose: whatever may hold a password, a key or a machine's identity (`shadow`, `ssl/private`, `machine-id`, `npmrc`, `gitconfig`, …), what
 * the sandbox gets a version of its own of (`passwd`, `hosts`, `resolv.conf`, …), and what only tools of an administrator read (`ld.so.conf`, `ca-certificates.conf`, …).
 */
const SETTINGS = [
  'alternatives', 'crypto-policies', 'fonts', 'java', 'ld.so.cache', 'locale.conf', 'localtime', 'mime.types', 'os-release', 'perl', 'pki/ca-trust', 'pki/java',
  'pki/tls/cert.pem', 'pki/tls/certs', 'pki/tls/openssl.cnf', 'protocols', 'python3', 'services', 'ssl/cert.pem', 'ssl/certs', 'ssl/openssl.cnf', 'static', 'timezone',
] // prettier-ignore

/** Java and Python keep their settings in folders named after the version. */
const VERSIONED_SETTINGS = /^(java-\d+-openjdk|python3\.\d+)$/

/** What of `/proc` tells about the memory and the devices of the whole machine; the host's user 0 may read it without a capability. */
const MASKED_PROC = ['acpi', 'asound', 'iomem', 'ioports', 'kallsyms', 'kcore', 'keys', 'kmsg', 'kpagecgroup', 'kpagecount', 'kpageflags', 'latency_stats', 'modules', 'pagetypeinfo', 'sched_debug', 'scsi',
  'slabinfo', 'timer_list', 'timer_stats', 'vmallocinfo'] // prettier-ignore

/** The system as this machine has it. */
export interface SystemView {
  readonly entries: readonly SystemEntry[]
  readonly maskedFiles: readonly string[]
  readonly maskedFolders: readonly string[]
}

/** Looks at the machine; reads nothing but names. */
export function readSystemView(): SystemView {
  const versioned = readdirSync('/etc').filter((name) => VERSIONED_SETTINGS.test(name))
  const settings = [...SETTINGS, ...versioned].map((name) => path.join('/etc', name))
  const masked = MASKED_PROC.map((name) => path.join('/proc', name)).flatMap((each) => {
    const stat = lstatSync(each, { throwIfNoEntry: false })
    return stat === undefined ? [] : [{ path: each, isFolder: stat.isDirectory() }]
  })
  return {
    entries: [...PROGRAM_FOLDERS, ...settings].flatMap(entryOf),
    maskedFiles: masked.filter(({ isFolder }) => !isFolder).map((each) => each.path),
    maskedFolders: masked.filter(({ isFolder }) => isFolder).map((each) => each.path),
  }
}

function entryOf(each: string): readonly SystemEntry[] {
  const stat = lstatSync(each, { throwIfNoEntry: false })
  if (stat === undefined) return []
  // As it is: what it points to is shown or not by its own right.
  if (stat.isSymbolicLink()) return [{ kind: 'symlink', path: each, target: readlinkSync(each) }]
  return [{ kind: 'bind', path: each }]
}
