/**
 * What stands for a platform's machine: a real worker in a real sandbox of this machine, with a network of its own whose only neighbour is this host. The
 * host lets it reach the gateway, and drops whatever else it sends but the replies of connections that the host opened. Needs root, bubblewrap, nftables
 * and iproute2.
 */
import { execFile, spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { findLimitSupport, openLimits } from '../../../provider/backends/limits.ts'
import { throughGroups } from '../../../provider/backends/through-groups.ts'
import { INSIDE, INSIDE_USER, writeOwnFiles } from '../../../provider/backends/inside.ts'
import { readSystemView } from '../../../provider/backends/system-view.ts'
import { workerFile } from '../../../provider/worker-file.ts'
import { connectNetwork, type Family, type GuestGateway } from './guest-network.ts'

export { openHostAddress } from './guest-network.ts'

/** A file inside before anything runs there; root's. */
export interface GuestFile {
  /** Absolute. */
  readonly path: string
  readonly content: string | Uint8Array
  /** `0o644` by default. */
  readonly mode?: number
}

export interface GuestOptions {
  /** Of the worker, as JSON. It should listen on every address, port 2024. Not looked at with a `command` of one's own. */
  readonly settings?: object
  readonly files?: readonly GuestFile[]
  /** Files and folders of this host, shown inside read-only. */
  readonly mounts?: readonly { readonly hostPath: string; readonly path: string }[]
  readonly gateway: GuestGateway
  /** Of its one address; 4 by default. */
  readonly family?: Family
  /** Who runs the worker; 1000 and 1000 by default. */
  readonly user?: { readonly uid: number; readonly gid: number }
  /** Runs as root with nothing to read, in the place of the worker: an image's own start. Node is {@link INSIDE}`.node`, the worker `.worker`. */
  readonly command?: readonly [string, ...string[]]
  readonly env?: Readonly<Record<string, string>>
  /** Root's, besides those that machines always have: `sys_admin` for an image that builds a wall of its own. */
  readonly capabilities?: readonly string[]
  /** Of the machine, where this one has control groups to hold it to. */
  readonly memoryLimitMb?: number
  /** Gets what it prints, as a machine's log does. */
  readonly onOutput?: (text: string) => void
}

export interface GuestExec {
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

export interface Guest {
  /** A literal that this host reaches. */
  readonly address: string
  readonly port: 2024
  /** Kills it and waits until nothing of it is left; idempotent. */
  readonly stop: () => Promise<void>
  /** When it is gone, by itself or stopped, and nothing is left. */
  readonly ended: Promise<void>
  /** Of its command, once that has ended; undefined where it was killed. */
  readonly exitCode: () => number | undefined
  /** As root inside. */
  readonly exec: (argv: readonly string[], options?: { readonly input?: string | Uint8Array }) => Promise<GuestExec>
  /** Command line that leads inside, as root: for a platform that streams, kills or has another user. */
  readonly enter: readonly [string, ...string[]]
}

/** What root of a machine has, and nothing that reaches this one. */
const CAPABILITIES = ['chown', 'dac_override', 'fowner', 'kill', 'setgid', 'setuid', 'setpcap', 'net_admin', 'net_raw', 'net_bind_service'] // prettier-ignore
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
const STATUS = 3
const BLOCK = 4
/** Whoever waits for a line knows by it that everything is in its place. */
const UP = 'guest is up'
const START_TIMEOUT_MS = 60_000

/** Resolves once its command runs, which is before a worker answers. */
export async function startGuest(options: GuestOptions): Promise<Guest> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spg-'))
  const support = findLimitSupport()
  const { memoryLimitMb } = options
  const limits = support.memory && memoryLimitMb !== undefined ? await openLimits(support, path.basename(folder), { memoryLimitMb }) : undefined // prettier-ignore
  const [program = '', ...args] = throughGroups(limits?.joinFiles ?? [], ['bwrap', ...(await bubblewrapArguments(options, folder)), '--', ...commandOf(options)]) // prettier-ignore
  const child = spawn(program, args, {
    cwd: '/',
    env: { PATH },
    stdio: ['pipe', 'pipe', 'pipe', 'pipe', 'pipe'],
    detached: true,
  })
  const closed = new Promise<void>((resolve) => {
    child.once('close', () => resolve())
    child.once('error', () => resolve())
  })
  let said = ''
  let exitCode: number | undefined
  const up = new Promise<void>((resolve) => {
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => {
        said = (said + chunk.toString()).slice(-65_536)
        options.onOutput?.(chunk.toString())
        if (said.includes(UP)) resolve()
      })
  })
  child.once('exit', (code) => (exitCode = code ?? undefined))
  const stdio: readonly unknown[] = child.stdio
  // Whatever breaks here shows by the end of the process.
  for (const stream of stdio) (stream as Readable).on('error', () => undefined)
  if (options.command === undefined) child.stdin.write(`${JSON.stringify(options.settings ?? {})}\n`)
  else child.stdin.end()

  let network: Awaited<ReturnType<typeof connectNetwork>> | undefined
  let pid: number | undefined
  const ended = closed.then(async () => {
    await network?.close()
    await limits?.close()
    fs.rmSync(folder, { recursive: true, force: true })
  })
  // Everything inside dies with its first process.
  const stop = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) killIfThere(pid ?? child.pid)
    await ended
  }
  const failure = closed.then(() => Promise.reject(new Error(`the guest ended before it was up: ${said.slice(-2_000)}`))) // prettier-ignore
  failure.catch(() => undefined)
  const patience = AbortSignal.timeout(START_TIMEOUT_MS)
  const impatience = new Promise<never>((_resolve, reject) => {
    patience.addEventListener('abort', () => reject(new Error(`the guest was not up in time: ${said.slice(-2_000)}`)))
  })
  impatience.catch(() => undefined)
  try {
    pid = await Promise.race([firstProcess(stdio[STATUS] as Readable), failure, impatience])
    network = await connectNetwork(pid, options.gateway, options.family ?? 4)
    ;(stdio[BLOCK] as Writable).end('go')
    await Promise.race([up, failure, impatience])
  } catch (error) {
    await stop()
    throw error
  }
  const inside = pid
  const enter = ['nsenter', '--target', String(inside), '--mount', '--pid', '--net', '--ipc', '--uts', '--wdns=/', '--'] as const // prettier-ignore
  return {
    address: network.address,
    port: 2024,
    stop,
    ended,
    exitCode: () => exitCode,
    exec: (argv, { input = '' } = {}) =>
      new Promise((resolve) => {
        const [program, ...rest] = enter
        const run = execFile(
          program,
          [...rest, ...argv],
          { env: { PATH }, maxBuffer: 2 ** 26 },
          (error, stdout, stderr) =>
            resolve({ exitCode: error === null ? 0 : typeof error.code === 'number' ? error.code : 137, stdout, stderr }), // prettier-ignore
        )
        run.stdin?.on('error', () => undefined)
        run.stdin?.end(input)
      }),
    enter,
  }
}

async function bubblewrapArguments(options: GuestOptions, folder: string): Promise<string[]> {
  const own = path.join(folder, 'etc')
  const names = writeOwnFiles(own, INSIDE.workspace)
  const system = readSystemView()
  const readOnly = (from: string, to: string): string[] => ['--ro-bind', from, to]
  return [
    ...['ipc', 'pid', 'net', 'uts'].map((namespace) => `--unshare-${namespace}`),
    ...['--unshare-cgroup-try', '--new-session', '--die-with-parent', '--clearenv', '--hostname', 'machine'],
    ...[
      '--cap-drop',
      'ALL',
      ...[...CAPABILITIES, ...(options.capabilities ?? [])].flatMap((name) => ['--cap-add', `cap_${name}`]),
    ],
    ...['--json-status-fd', String(STATUS), '--block-fd', String(BLOCK)],
    ...Object.entries({ PATH, ...options.env }).flatMap(([name, value]) => ['--setenv', name, value]),

    ...system.entries.flatMap((entry) =>
      entry.kind === 'bind' ? readOnly(entry.path, entry.path) : ['--symlink', entry.target, entry.path],
    ),
    ...names.flatMap((name) => readOnly(path.join(own, name), `/etc/${name}`)),
    ...['--proc', '/proc'],
    ...system.maskedFiles.flatMap((file) => readOnly('/dev/null', file)),
    ...system.maskedFolders.flatMap((masked) => ['--tmpfs', masked, '--remount-ro', masked]),
    // The settings in there are this machine's.
    ...['--remount-ro', '/proc', '--dev', '/dev', '--tmpfs', '/dev/shm', '--perms', '1777', '--tmpfs', '/tmp'],
    ...['--tmpfs', '/run', '--tmpfs', '/var', '--tmpfs', INSIDE.workspace],
    ...readOnly(process.execPath, INSIDE.node),
    ...readOnly(await workerFile(), INSIDE.worker),
    ...(options.mounts ?? []).flatMap(({ hostPath, path }) => readOnly(hostPath, path)),
    ...(options.files ?? []).flatMap((file, index) => {
      const staged = path.join(folder, `file-${index}`)
      fs.writeFileSync(staged, file.content, { mode: 0o600 })
      return readOnly(staged, `${STAGED}/${index}`)
    }),
    ...['--chdir', '/'],
  ]
}

/** Where files are until they are copied: a mount could not be removed, as the files of a platform can. */
const STAGED = '/run/guest-files'

/** Root's first steps, then the command: a machine's own file system has both done long before. */
function commandOf({ command, settings, user = INSIDE_USER, files = [] }: GuestOptions): string[] {
  const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`
  const copies = files.map(({ path: to, mode = 0o644 }, index) => `mkdir -p ${quote(path.posix.dirname(to))} && cp ${STAGED}/${index} ${quote(to)} && chmod ${mode.toString(8)} ${quote(to)}`) // prettier-ignore
  // bubblewrap, run by root, makes the folders above a mount for root alone.
  const open = `find / /run /var -xdev -type d -perm 0700 -exec chmod 755 {} +\n[ ! -e ${STAGED} ] || chmod 700 ${STAGED}`
  const own = `chown ${user.uid}:${user.gid} ${INSIDE.workspace}`
  if (command === undefined && settings === undefined) throw new Error('a guest needs settings, or a command')
  const { uid, gid } = user
  const asUser = ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--no-new-privs', '--inh-caps=-all', '--bounding-set=-all', INSIDE.node, INSIDE.worker, '-'] // prettier-ignore
  return [
    '/bin/sh',
    '-euc',
    `${[open, ...copies, own, `echo ${UP}`].join('\n')}\nexec "$@"`,
    'sh',
    ...(command ?? asUser),
  ]
}

/** Number, here, of the first process inside. */
function firstProcess(status: Readable): Promise<number> {
  return new Promise((resolve) => {
    let text = ''
    status.on('data', (chunk: Buffer) => {
      text = (text + chunk.toString()).slice(-4_096)
      const found = /"child-pid"\s*:\s*(\d+)\D/.exec(text)?.[1]
      if (found !== undefined) resolve(Number(found))
    })
  })
}

function killIfThere(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It ended by itself.
  }
}
