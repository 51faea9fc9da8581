/** What `sandboxes.ts` measures: sandboxes of a backend, and what they are made of. */
import { spawn } from 'node:child_process'
import { existsSync, realpathSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { type BackendConfig, createSandboxProvider, type Sandbox, type SandboxProvider } from '../provider/index.ts'

const MIB = 1024 * 1024
export const OUTPUT_MIB = 256
/** For a spare to be there again. */
const SPARE_READY_MS = 1500
/** For the process that the next sandbox begins in to be there again. */
const LAUNCHER_READY_MS = 250

/** One way to run something shut in. Times in milliseconds. */
export interface Subject {
  readonly name: string
  readonly peer?: string
  readonly coldStart: () => Promise<number>
  readonly roundTrip?: () => Promise<number>
  readonly output?: () => Promise<number>
  readonly filesIn?: () => Promise<number>
  readonly filesOut?: () => Promise<number>
  readonly close: () => Promise<void>
}

/** Where it is done, and how much. */
export interface Setting {
  readonly runtimeRoot: string
  /** Size of files. */
  readonly mib: number
}

/** Those of one backend. */
export async function sandboxes(
  { runtimeRoot, mib }: Setting,
  name: string,
  peer: string,
  backend: BackendConfig,
  spares = 0,
): Promise<Subject> {
  const provider: SandboxProvider = createSandboxProvider({
    backend,
    runtimeRoot,
    spares,
    defaultEgress: { kind: backend.tier === 'passthrough' ? 'allow-all' : 'deny-all' },
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
      // The next one starts meanwhile, or is forked at least: it must not be in the way of what is measured next.
      await delay(spares > 0 ? SPARE_READY_MS : LAUNCHER_READY_MS)
      return tookMs
    },
    ...(spares === 0 && runningCosts(kept, mib)),
    close: () => provider[Symbol.asyncDispose]() as Promise<void>,
  }
}

/** The first sandbox of a provider, which pays for all that the next ones find: the gateway, what is known of the machine, a fork. */
export function firstSandboxes({ runtimeRoot }: Setting, name: string, peer: string, backend: BackendConfig): Subject {
  return {
    name,
    peer,
    coldStart: async () => {
      const startedMs = performance.now()
      const provider = createSandboxProvider({ backend, runtimeRoot })
      const sandbox = await provider.create()
      const { exitCode } = await sandbox.exec('true', [])
      const tookMs = performance.now() - startedMs
      if (exitCode !== 0) throw new Error(`the command ended with ${exitCode}`)
      await sandbox.destroy()
      await provider[Symbol.asyncDispose]()
      await delay(LAUNCHER_READY_MS)
      return tookMs
    },
    close: () => Promise.resolve(),
  }
}

/** What somebody pays who types it: two processes of Node's in a row, and the sandbox. Of the built package, where there is one. */
export function commandLine(name: string, peer: string): Subject {
  const root = path.resolve(import.meta.dirname, '..')
  const built = path.join(root, 'dist/provider/cli/bin.js')
  const cli = existsSync(built) ? built : path.join(root, 'provider/cli/bin.ts')
  return {
    name,
    peer,
    coldStart: () => timed(() => ended(process.execPath, [cli, 'run', '--quiet', '--no-stdin', '--', 'true'])),
    close: () => Promise.resolve(),
  }
}

/** What the command line can't do without: a Node outside, and one shut in. */
export function nodeAndBubblewrap(name: string): Subject {
  const { coldStart } = bareBubblewrap(name)
  return {
    name,
    coldStart: () => timed(async () => (await ended(process.execPath, ['-e', '0']), coldStart())),
    close: () => Promise.resolve(),
  }
}

/** What a sandbox costs once it runs. */
function runningCosts(kept: Sandbox, mib: number): Pick<Subject, 'roundTrip' | 'output' | 'filesIn' | 'filesOut'> {
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
export function bareBubblewrap(name: string): Subject {
  const node = realpathSync(process.execPath)
  const walls = [
    '--unshare-all --die-with-parent --new-session --cap-drop ALL --clearenv --setenv PATH /usr/bin:/bin',
    '--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev',
    '--tmpfs /tmp --dir /work --chdir /work --uid 10001 --gid 10001',
  ].flatMap((line) => line.split(' '))
  return {
    name,
    coldStart: () =>
      timed(() => ended('bwrap', [...walls, '--ro-bind', node, '/opt/node', '--', '/opt/node', '-e', '0'])),
    roundTrip: () => timed(() => ended('bwrap', [...walls, '--', 'true'])),
    close: () => Promise.resolve(),
  }
}

/** The command line of `@anthropic-ai/sandbox-runtime`, as anybody starts it. */
export function bareSrt(name: string, peer: string, folder: string): Subject {
  const cli = path.resolve(import.meta.dirname, '../node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js')
  const settings = path.join(folder, 'srt.json')
  writeFileSync(
    settings,
    JSON.stringify({
      network: { allowedDomains: ['gateway.invalid'], deniedDomains: [] },
      filesystem: { denyRead: [], allowWrite: [folder], denyWrite: [] },
    }),
  )
  const srt = (...command: readonly string[]): Promise<number> =>
    timed(() => ended(process.execPath, [cli, '--settings', settings, ...command]))
  return {
    name,
    peer,
    coldStart: () => srt(realpathSync(process.execPath), '-e', '0'),
    roundTrip: () => srt('true'),
    close: () => Promise.resolve(),
  }
}

async function* zeros(count: number): AsyncGenerator<Uint8Array> {
  const chunk = Buffer.alloc(MIB)
  for (let index = 0; index < count; index += 1) yield await Promise.resolve(chunk)
}

/** Milliseconds that it takes. */
export async function timed(action: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now()
  await action()
  return performance.now() - startedMs
}

/** Its output is read and thrown away. */
export function ended(command: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
    child.stdout.resume()
    child.once('error', reject)
    child.once('close', (code) => (code === 0 ? resolve() : reject(new Error(`${command} ended with ${String(code)}`))))
  })
}
