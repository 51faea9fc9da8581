/**
 * `npm run bench:sandboxes -- [--rounds 9] [--mib 1024] [--only process,docker]`
 * What a sandbox costs, backend by backend, beside what it is made of: bare bubblewrap, `docker run` and `docker exec`. Wall time in one run, by turns, as
 * medians; the ratio is to the peer of the same kind. Root, bubblewrap, and for containers an engine of the bench's own (dockerd, busybox, runsc).
 */
import { execFile, spawn } from 'node:child_process'
import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs, promisify } from 'node:util'
import { type BackendConfig, createSandboxProvider, type Sandbox, type SandboxProvider } from '../provider/index.ts'
import { startDaemon } from '../test/provider/docker/daemon.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    mib: { type: 'string', default: '1024' },
    only: { type: 'string', default: 'process,srt,passthrough,docker,runsc' },
  },
})
const rounds = Number(values.rounds)
const mib = Number(values.mib)
const only = values.only.split(',')
const run = promisify(execFile)
const MIB = 1024 * 1024
const OUTPUT_MIB = 256
/** For a spare to be there again. */
const SPARE_READY_MS = 1500

/** One way to run something shut in. Times in milliseconds. */
interface Subject {
  readonly name: string
  readonly peer?: string
  readonly coldStart: () => Promise<number>
  readonly roundTrip?: () => Promise<number>
  readonly output?: () => Promise<number>
  readonly filesIn?: () => Promise<number>
  readonly filesOut?: () => Promise<number>
  readonly close: () => Promise<void>
}

const runtimeRoot = mkdtempSync('/tmp/spb-')
const usesEngine = only.some((name) => name === 'docker' || name === 'runsc')
const daemon = usesEngine
  ? await startDaemon({
      runtimes: {
        runsc: { path: '/usr/bin/runsc', runtimeArgs: ['--network=none', '--platform=ptrace', '--host-uds=open'] },
      },
      diskMb: 640 + 4 * mib,
    })
  : undefined
try {
  await measure()
} finally {
  await daemon?.close()
  rmSync(runtimeRoot, { recursive: true, force: true })
}

async function measure(): Promise<void> {
  const container = daemon && { image: 'busybox', engine: { socketPath: daemon.socketPath }, memoryFolderMb: 2 * mib, memoryLimitMb: 4 * mib } // prettier-ignore
  const ours: readonly (readonly [string, string, BackendConfig | undefined])[] = [
    ['process', 'bwrap', { tier: 'process' }],
    ['process, spare', 'bwrap', { tier: 'process' }],
    ['srt', 'bwrap', { tier: 'process', engine: 'srt' }],
    ['passthrough', 'bwrap', { tier: 'passthrough', unsafeUnenforced: true }],
    ['docker', 'docker run', container && { tier: 'container', runtime: 'docker', ...container }],
    ['runsc', 'docker run (runsc)', container && { tier: 'container', runtime: 'runsc', ...container }],
  ]
  const peers = [
    bareBubblewrap(),
    ...(daemon !== undefined && only.includes('docker') ? [await bareDocker('docker run', [])] : []),
    ...(daemon !== undefined && only.includes('runsc')
      ? [await bareDocker('docker run (runsc)', ['--runtime=runsc'])]
      : []),
  ]
  const subjects = [...peers]
  for (const [name, peer, config] of ours)
    if (only.includes(name.split(',')[0] ?? '') && config !== undefined)
      await sandboxes(name, peer, config, name.endsWith(', spare') ? 1 : 0).then(
        (subject) => subjects.push(subject),
        (error: unknown) => console.log(`without ${name}: ${error instanceof Error ? error.message : String(error)}`),
      )
  const figures = [
    ['cold start, ms', 'coldStart', rounds, (ms: number) => ms],
    ['exec round trip, ms', 'roundTrip', rounds * 3, (ms: number) => ms],
    ['output, MiB/s', 'output', 3, (ms: number) => OUTPUT_MIB / (ms / 1000)],
    ['file in, MiB/s', 'filesIn', 3, (ms: number) => mib / (ms / 1000)],
    ['file out, MiB/s', 'filesOut', 3, (ms: number) => mib / (ms / 1000)],
  ] as const
  console.log(['figure', ...subjects.map(({ name }) => name)].join('\t'))
  for (const [title, figure, times, unit] of figures) {
    const taken = subjects.map(() => [] as number[])
    for (let round = 0; round < times; round += 1)
      for (const [place, subject] of subjects.entries()) {
        const take = subject[figure]
        if (take !== undefined) taken[place]?.push(unit(await take()))
      }
    const medians = new Map(subjects.map(({ name }, place) => [name, median(taken[place] ?? [])]))
    const cells = subjects.map(({ name, peer }) => {
      const own = medians.get(name)
      const other = peer === undefined ? undefined : medians.get(peer)
      if (own === undefined) return '-'
      return `${own.toFixed(own < 100 ? 1 : 0)}${other === undefined ? '' : ` (${(own / other).toFixed(2)})`}`
    })
    console.log([title, ...cells].join('\t'))
  }
  for (const { close } of subjects) await close()
}

async function sandboxes(name: string, peer: string, backend: BackendConfig, spares = 0): Promise<Subject> {
  const provider: SandboxProvider = createSandboxProvider({
    backend,
    runtimeRoot,
    spares,
    defaultEgress: { kind: name === 'passthrough' ? 'allow-all' : 'deny-all' },
    gateway: { machineSets: { sets: { npm: [], apt: [] }, notes: [] } },
  })
  // What only the first one pays: the gateway, the toolbox, what was found out about the machine.
  const kept: Sandbox = await provider.create()
  if (spares > 0) await delay(SPARE_READY_MS)
  return {
    name,
    peer,
    coldStart: async () => {
      const startedMs = performance.now()
      const sandbox = await provider.create()
      const { exitCode } = await sandbox.exec('true', [])
      const tookMs = performance.now() - startedMs
      if (exitCode !== 0) throw new Error(`the command ended with ${exitCode}`)
      await sandbox.destroy()
      // The next one starts meanwhile: it must not be in the way of what is measured next.
      if (spares > 0) await delay(SPARE_READY_MS)
      return tookMs
    },
    ...(spares === 0 && runningCosts(kept)),
    close: () => provider[Symbol.asyncDispose]() as Promise<void>,
  }
}

/** What a sandbox costs once it runs. */
function runningCosts(kept: Sandbox): Pick<Subject, 'roundTrip' | 'output' | 'filesIn' | 'filesOut'> {
  const file = `${kept.rootDir}/file`
  return {
    roundTrip: () => timed(() => kept.exec('true', [])),
    output: () =>
      timed(async () => {
        const { stdout, stdoutTruncated = 0 } = await kept.exec(`head -c ${OUTPUT_MIB * MIB} /dev/zero`)
        if (stdout.length + stdoutTruncated !== OUTPUT_MIB * MIB) throw new Error('output is missing')
      }),
    filesIn: () => timed(() => kept.writeFile(file, zeros(mib))),
    filesOut: () =>
      timed(async () => {
        let bytes = 0
        for await (const chunk of kept.readFileStream(file)) bytes += chunk.length
        if (bytes !== mib * MIB) throw new Error('part of the file is missing')
      }),
  }
}

/** The least that shuts a Node in. */
function bareBubblewrap(): Subject {
  const node = realpathSync(process.execPath)
  const walls = [
    '--unshare-all --die-with-parent --new-session --cap-drop ALL --clearenv --setenv PATH /usr/bin:/bin',
    '--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev',
    '--tmpfs /tmp --dir /work --chdir /work --uid 10001 --gid 10001',
  ].flatMap((line) => line.split(' '))
  return {
    name: 'bwrap',
    coldStart: () =>
      timed(() => ended('bwrap', [...walls, '--ro-bind', node, '/opt/node', '--', '/opt/node', '-e', '0'])),
    roundTrip: () => timed(() => ended('bwrap', [...walls, '--', 'true'])),
    close: () => Promise.resolve(),
  }
}

async function bareDocker(name: string, options: readonly string[]): Promise<Subject> {
  const host = ['--host', `unix://${daemon?.socketPath ?? ''}`]
  const common = [...options, '--network', 'none']
  const { stdout } = await run('docker', [...host, 'run', '--detach', '--rm', ...common, 'busybox', 'sleep', '100000'])
  const id = stdout.trim()
  return {
    name,
    coldStart: () => timed(() => run('docker', [...host, 'run', '--rm', ...common, 'busybox', 'true'])),
    roundTrip: () => timed(() => run('docker', [...host, 'exec', id, 'true'])),
    output: () =>
      timed(() => ended('docker', [...host, 'exec', id, 'head', '-c', String(OUTPUT_MIB * MIB), '/dev/zero'])),
    close: async () => {
      await run('docker', [...host, 'rm', '--force', id])
    },
  }
}

async function* zeros(count: number): AsyncGenerator<Uint8Array> {
  const chunk = Buffer.alloc(MIB)
  for (let index = 0; index < count; index += 1) yield await Promise.resolve(chunk)
}

async function timed(action: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now()
  await action()
  return performance.now() - startedMs
}

/** Its output is read and thrown away. */
function ended(command: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
    child.stdout.resume()
    child.once('error', reject)
    child.once('close', (code) => (code === 0 ? resolve() : reject(new Error(`${command} ended with ${String(code)}`))))
  })
}

function median(all: readonly number[]): number | undefined {
  return all.toSorted((a, b) => a - b)[all.length >> 1]
}
