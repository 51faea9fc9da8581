/** Whether bubblewrap works on this machine, and what to do when it does not. */
import { execFile } from 'node:child_process'
import { access, constants } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { SandboxError } from '../sandbox-error.ts'
import { filterArchitecture, type FilterArchitecture } from './syscalls.ts'

/** A bubblewrap that works. */
export interface Bubblewrap {
  readonly path: string
  /** `--size` for a tmpfs: since 0.7. */
  readonly hasSize: boolean
  readonly architecture: FilterArchitecture
}

const OLDEST = [0, 5] as const
const SIZE_SINCE = [0, 7] as const
const TRIAL_TIMEOUT_MS = 20_000

/**
 * Finds bubblewrap.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_BACKEND_MISSING` that says which command installs or allows it
 */
export async function findBubblewrap(named?: string): Promise<Bubblewrap> {
  const architecture = filterArchitecture(process.arch)
  if (architecture === undefined)
    throw missing(`there is no system call filter for the processor \`${process.arch}\` (there is for x64 and arm64)`)
  const file = named ?? (await findInPath('bwrap'))
  if (file === undefined)
    throw missing(
      'bubblewrap is not installed: `apt-get install bubblewrap`, `dnf install bubblewrap` or `apk add bubblewrap`',
    )
  const version = await readVersion(file)
  if (!isAtLeast(version, OLDEST))
    throw missing(`bubblewrap ${version.join('.')} is too old: ${OLDEST.join('.')} or newer is needed`)
  return { path: file, hasSize: isAtLeast(version, SIZE_SINCE), architecture }
}

async function findInPath(name: string): Promise<string | undefined> {
  for (const folder of (process.env['PATH'] ?? '').split(':').concat('/usr/bin', '/bin')) {
    // A relative folder would let the present folder decide what builds the wall.
    if (!path.isAbsolute(folder)) continue
    const file = path.join(folder, name)
    if (await access(file, constants.X_OK).then(() => true, () => false)) return file // prettier-ignore
  }
  return undefined
}

async function readVersion(file: string): Promise<readonly number[]> {
  const { stdout } = await promisify(execFile)(file, ['--version'], { env: {}, timeout: TRIAL_TIMEOUT_MS }).catch(
    (cause: unknown) => {
      throw missing(`\`${file} --version\` does not work`, cause)
    },
  )
  return (/(\d+)\.(\d+)/.exec(stdout) ?? []).slice(1).map(Number)
}

function isAtLeast(
  [major = 0, minor = 0]: readonly number[],
  [oldestMajor, oldestMinor]: readonly [number, number],
): boolean {
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)
}

/**
 * Has it build an empty sandbox, with the namespaces and mounts that every one needs; `/bin/sh` is there on every Linux.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_BACKEND_MISSING` that says what allows it
 */
export async function tryBubblewrap({ path: file }: Bubblewrap): Promise<void> {
  const namespaces = ['user', 'ipc', 'pid', 'net', 'uts'].map((each) => `--unshare-${each}`)
  const args = [
    ...namespaces,
    '--uid',
    '1000',
    '--gid',
    '1000',
    '--ro-bind',
    '/',
    '/',
    '--proc',
    '/proc',
    '--dev',
    '/dev',
    '--',
    '/bin/sh',
    '-c',
    ':',
  ]
  try {
    await promisify(execFile)(file, args, { env: {}, timeout: TRIAL_TIMEOUT_MS })
  } catch (cause) {
    const { stderr = '' } = cause as { stderr?: string }
    const said = stderr.trim().split('\n').at(-1) ?? ''
    throw missing(`bubblewrap can not build a sandbox here (${said.slice(0, 200)}): ${adviceFor(said)}`, cause)
  }
}

function adviceFor(said: string): string {
  if (/namespace|uid map|RTM_NEWADDR|loopback/i.test(said))
    return (
      'unprivileged user namespaces are probably off. Ubuntu 23.10 and newer: `sysctl kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile for bwrap; ' +
      'older Debian: `sysctl kernel.unprivileged_userns_clone=1`; in a container: allow user namespaces in its seccomp profile'
    )
  if (/proc/i.test(said))
    return 'a fresh /proc can not be mounted, as in most containers: run on the host, or start the container with an unmasked /proc'
  return 'run the command `bwrap --unshare-user --unshare-net --ro-bind / / true` to see what is in the way'
}

function missing(message: string, cause?: unknown): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_BACKEND_MISSING', message, { cause })
}
