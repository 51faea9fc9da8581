/** Sandboxes as processes of this machine: behind bubblewrap on Linux, behind Seatbelt on macOS through the sandbox runtime. */
import os from 'node:os'
import path from 'node:path'
import type { Backend, StartedSandbox } from '../backend.ts'
import type { SandboxCapabilities, SandboxInfo } from '../sandbox.ts'
import { SandboxError } from '../sandbox-error.ts'
import { startBubblewrap } from './bubblewrap.ts'
import { type Bubblewrap, findBubblewrap, tryBubblewrap } from './bubblewrap-check.ts'
import { createLaunchers } from './launchers.ts'
import { attachRecorded, listRecorded } from './recorded-sandboxes.ts'
import { findLimitSupport, limitGaps, NO_LIMITS, type LimitSupport } from './limits.ts'
import { type MountOption, resolveMount } from './mounts.ts'
import { checkSrt, SEATBELT_GAPS, SRT_GAPS, startSrt } from './srt.ts'
import { readSystemView, type SystemView } from './system-view.ts'

/** What builds the wall. `auto`: bubblewrap on Linux, Seatbelt on macOS. */
export type ProcessEngine = 'auto' | 'bubblewrap' | 'seatbelt' | 'srt'

/** How sandboxes of the process tier are made. */
export interface ProcessBackendOptions {
  readonly engine?: ProcessEngine
  /** Folder of the runtime folders: that of a sandbox is `<runtimeRoot>/<id>`. */
  readonly runtimeRoot: string
  /** A host folder that is writable inside, under its own path, and is the `rootDir` of every sandbox; by default each has an empty one of its own, `/workspace`. */
  readonly workingFolder?: string
  /** Further host folders and files; read-only unless they say otherwise. Never a home folder, nor what contains one. */
  readonly mounts?: readonly MountOption[]
  /** The program, instead of the first `bwrap` in `PATH`. */
  readonly bubblewrapPath?: string
}

/**
 * Makes the backend.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED` for a platform, an engine or a mount that can't be had
 */
export function createProcessBackend(options: ProcessBackendOptions): Backend {
  const engine = chooseEngine(options.engine ?? 'auto', os.platform())
  const { runtimeRoot } = options
  const context = { runtimeRoot }
  const mounts = (options.mounts ?? []).map((mount) => resolveMount(mount, context))
  const workingFolder =
    options.workingFolder === undefined
      ? undefined
      : resolveMount({ hostPath: options.workingFolder, writable: true }, context)
  const limits = engine === 'seatbelt' ? NO_LIMITS : findLimitSupport()
  const bubblewrap = onceFound(() => findBubblewrap(options.bubblewrapPath))
  const launchers = createLaunchers()
  let system: SystemView | undefined
  const check = async (): Promise<Bubblewrap | undefined> => {
    if (engine !== 'bubblewrap') checkSrt()
    return engine === 'seatbelt' ? undefined : bubblewrap()
  }

  return {
    name: 'process',
    environment: engine === 'seatbelt' ? 'macos-seatbelt' : 'linux-namespace',
    capabilities: capabilitiesOf(engine, limits),
    canBeSpare: true,
    startsAtOnce: true,
    check: async () => {
      const found = await check()
      if (found !== undefined) await tryBubblewrap(found)
    },
    start: async (request): Promise<StartedSandbox> => {
      const checking = check()
      if (engine === 'bubblewrap') system ??= readSystemView()
      const found = await checking
      const common = { launchers, limits, mounts, workingFolder }
      try {
        return found === undefined || engine !== 'bubblewrap'
          ? await startSrt({ ...common, bubblewrap: found, runtimeRoot }, request)
          : await startBubblewrap({ ...common, bubblewrap: found, system: system ?? readSystemView() }, request)
      } catch (error) {
        // No start is a better trial than a start. Whether it is the machine that does not allow it is only asked when one fails.
        if (found !== undefined && request.signal?.aborted !== true) await tryBubblewrap(found)
        throw error
      }
    },
    list: (): Promise<readonly SandboxInfo[]> => listRecorded(runtimeRoot, 'process'),
    attach: (id) => attachRecorded(path.join(runtimeRoot, id), 'process'),
    close: () => {
      launchers.close()
      return Promise.resolve()
    },
  }
}

/** Looked for again after a failure: somebody may have installed it. */
function onceFound<T>(find: () => Promise<T>): () => Promise<T> {
  let found: Promise<T> | undefined
  return () =>
    (found ??= find().catch((error: unknown) => {
      found = undefined
      throw error
    }))
}

function capabilitiesOf(engine: Exclude<ProcessEngine, 'auto'>, limits: LimitSupport): SandboxCapabilities {
  return {
    enforcement: 'kernel',
    streaming: true,
    spawn: true,
    runtimeEgressChange: true,
    memoryLimit: limits.memory && 'command',
    processLimit: limits.processes,
    timeToLive: true,
    attach: true,
    leftOpen: [
      'the kernel is the host’s own: a fault in one of its system calls is a way out',
      'disk space of the working folder and processor time are not limited',
      'the unix sockets that other programs keep in the working folder or in a mount can be connected to',
      'what a command leaves in the working folder is there for the host’s own tools to run: hooks, build files, settings of editors',
      ...(engine === 'bubblewrap' ? [] : SRT_GAPS),
      ...(engine === 'seatbelt' ? SEATBELT_GAPS : []),
      ...limitGaps(limits),
    ],
  }
}

/** @throws SandboxError where the engine is not of this platform */
function chooseEngine(engine: ProcessEngine, platform: NodeJS.Platform): Exclude<ProcessEngine, 'auto'> {
  const own = platform === 'linux' ? 'bubblewrap' : platform === 'darwin' ? 'seatbelt' : undefined
  if (own === undefined)
    throw new SandboxError(
      'SALLYPORT_SANDBOX_NOT_SUPPORTED',
      `the process backend runs on Linux and macOS, not on \`${platform}\``,
    )
  if (engine === 'auto') return own
  if (engine !== 'srt' && engine !== own)
    throw new SandboxError(
      'SALLYPORT_SANDBOX_NOT_SUPPORTED',
      `the engine \`${engine}\` is not of this platform; here it is \`${own}\``,
    )
  return engine
}
