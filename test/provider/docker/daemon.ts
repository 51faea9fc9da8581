/**
 * A Docker engine of the test's own: in its own network and mount namespaces, with its images in memory, so that nothing of it outlives its process.
 *
 * Needs root. Containers are removed before the engine is stopped; whatever process of it is left then is a fault, and is ended.
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import Docker from 'dockerode'
import { buildImages } from './images.ts'

export interface TestDaemon {
  readonly docker: Docker
  readonly socketPath: string
  /** Folder for sandboxes; short, for sockets. */
  readonly runtimeRoot: string
  /** Command line that runs what follows it in the engine's network. */
  readonly inHost: readonly string[]
  /** Fills the engine's disk to the last byte; the result empties it again. */
  readonly fillDisk: () => () => void
  /** Processes that carry the engine's folder in their command line, the engine's own two left out. */
  readonly processes: () => readonly string[]
  /** Stops the engine and starts it anew. */
  readonly restart: () => Promise<void>
  readonly close: () => Promise<void>
}

const DISK_MB = 640
const PATIENCE_MS = 30_000
/** Where nothing has mounted them; within the engine's own mounts alone. */
const CGROUPS =
  '{ test -e /sys/fs/cgroup/cgroup.controllers || test -d /sys/fs/cgroup/memory || ' +
  '{ mount -t tmpfs cgroup /sys/fs/cgroup && for c in $(sed -n "s/^\\([a-z_]*\\)\t.*\t1$/\\1/p" /proc/cgroups); do mkdir /sys/fs/cgroup/$c && mount -t cgroup -o $c cgroup /sys/fs/cgroup/$c; done; }; }'

/** `runtimes` as in the engine's configuration. `within`: command line that enters the network namespace to use, by default one of its own. `diskMb`: room for images and containers, in memory. */
export async function startDaemon(
  options: {
    readonly runtimes?: Readonly<Record<string, object>>
    readonly within?: readonly string[]
    readonly diskMb?: number
  } = {},
): Promise<TestDaemon> {
  const { runtimes = {}, within = ['unshare', '--net'], diskMb = DISK_MB } = options
  const folder = mkdtempSync('/tmp/spd-')
  const socketPath = path.join(folder, 'docker.sock')
  // What sandboxes are made of is kept in the user's cache otherwise.
  process.env['XDG_CACHE_HOME'] = path.join(folder, 'cache')
  const cgroup = `sallyport-${path.basename(folder)}`
  writeFileSync(
    path.join(folder, 'daemon.json'),
    JSON.stringify({
      'data-root': path.join(folder, 'data'),
      'exec-root': path.join(folder, 'exec'),
      pidfile: path.join(folder, 'pid'),
      hosts: [`unix://${socketPath}`],
      'cgroup-parent': `/${cgroup}`,
      runtimes,
    }),
  )
  // One that only holds the namespaces, so that an engine may be restarted in them.
  writeFileSync(path.join(folder, 'resolv.conf'), 'nameserver 127.0.0.53\n')
  const prepare = [
    'ip link set lo up',
    CGROUPS,
    `mkdir ${folder}/data`,
    `mount -t tmpfs -o size=${diskMb}m tmpfs ${folder}/data`,
    // As systemd-resolved has it, which is where old engines leak.
    `mount --bind ${folder}/resolv.conf /etc/resolv.conf`,
    'echo ready',
    'exec cat',
  ].join(' && ')
  const [program, ...args]: readonly string[] = [...within, 'unshare', '--mount', 'sh', '-c', prepare]
  if (program === undefined) throw new Error('no program')
  const holder = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  await new Promise<void>((resolve, reject) => {
    holder.stdout.once('data', () => resolve())
    holder.once('exit', (code) => reject(new Error(`the namespaces could not be made (${String(code)})`)))
  })
  const enter = ['nsenter', '--target', String(holder.pid), '--net', '--mount', '--']
  const docker = new Docker({ socketPath })
  let engine: ChildProcess | undefined

  const start = async (): Promise<void> => {
    const [program, ...args] = enter as [string, ...string[]]
    // It ends with this process, also when that is killed.
    const child = spawn(
      'setpriv',
      ['--pdeathsig', 'TERM', program, ...args, 'dockerd', '--config-file', path.join(folder, 'daemon.json')],
      {
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    )
    engine = child
    let log = ''
    child.stderr.on('data', (chunk: Buffer) => (log = (log + chunk.toString()).slice(-4_000)))
    const untilMs = performance.now() + PATIENCE_MS
    for (;;) {
      if (
        await docker.ping().then(
          () => true,
          () => false,
        )
      )
        return
      if (child.exitCode !== null || performance.now() > untilMs) throw new Error(`dockerd does not start: ${log}`)
      await pause(50)
    }
  }
  const stop = async (): Promise<void> => {
    const child = engine
    if (child === undefined || child.exitCode !== null) return
    const ended = new Promise((resolve) => child.once('exit', resolve))
    child.kill('SIGTERM')
    await ended
  }
  const processes = (): string[] => linesOf(folder).map(({ line }) => line)

  const daemon: TestDaemon = {
    docker,
    socketPath,
    runtimeRoot: path.join(folder, 'r'),
    inHost: ['nsenter', '--target', String(holder.pid), '--net', '--'],
    fillDisk: () => {
      const file = `/proc/${String(holder.pid)}/root${folder}/data/filler`
      const { bavail, bsize } = statfsSync(path.dirname(file))
      execFileSync('fallocate', ['--length', String(bavail * bsize), file])
      return () => rmSync(file)
    },
    processes,
    restart: async () => {
      await stop()
      await start()
    },
    close: async () => {
      for (const { Id } of await docker.listContainers({ all: true }))
        await docker
          .getContainer(Id)
          .remove({ force: true, v: true })
          .catch(() => undefined)
      await stop()
      const left = linesOf(folder)
      for (const { pid } of left) process.kill(pid, 'SIGKILL')
      holder.kill('SIGKILL')
      removeCgroups(cgroup)
      rmSync(folder, { recursive: true, force: true })
      if (left.length > 0)
        throw new Error(`the engine left processes behind:\n${left.map(({ line }) => line).join('\n')}`)
    },
  }
  try {
    await start()
    await buildImages(docker)
  } catch (error) {
    await daemon.close().catch(() => undefined)
    throw error
  }
  return daemon
}

function linesOf(folder: string): { readonly pid: number; readonly line: string }[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      const line = readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ')
      const isOwn =
        line.includes(folder) &&
        !/^(nsenter|unshare|sh|\S*dockerd|\S*containerd) /.test(line) &&
        Number(name) !== process.pid
      return isOwn ? [{ pid: Number(name), line }] : []
    } catch {
      return []
    }
  })
}

function removeCgroups(name: string): void {
  const root = '/sys/fs/cgroup'
  for (const folder of [root, ...readdirSync(root).map((each) => path.join(root, each))]) {
    const own = path.join(folder, name)
    if (!existsSync(own)) continue
    // A container that was killed from outside leaves its own.
    const inner = readdirSync(own, { withFileTypes: true })
      .filter((each) => each.isDirectory())
      .map((each) => path.join(own, each.name))
    for (const each of [...inner, own]) {
      try {
        rmdirSync(each)
      } catch {
        // Of a controller that keeps it for a moment; it is empty.
      }
    }
  }
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds))
}
