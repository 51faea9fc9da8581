/** One worker: its server, its way out, its children, its end. */
import fs from 'node:fs'
import type net from 'node:net'
import { createChildPipes } from './child-pipes.ts'
import { createConfinement } from './confinement.ts'
import type { WorkerContext } from './context.ts'
import { Fault } from './fault.ts'
import { takeHandedPipes } from './handed-pipes.ts'
import { listenAt } from './listen.ts'
import { killTree } from './process-tree.ts'
import { createProcesses } from './processes.ts'
import { putOffCollection } from './put-off-collection.ts'
import { createServer } from './server.ts'
import type { WorkerSettings } from './settings.ts'
import { openWayOut } from './way-out.ts'

/** A worker that answers. */
export interface Worker {
  /** Of the probe that the settings asked for, if they did. */
  readonly probed: object | undefined
  /** Kills everything it started, and listens no more. */
  close(): void
}

const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
// How often the end of its time is looked at: the clock may jump when a sandbox is paused.
const MAX_TIMER_MS = 10_000
/** By then the first command has run, or nobody waits for it. */
const START_MS = 1_000

/** Resolves when requests are answered, and what was to be looked for at the start was. `onExpired` is called once, after the worker has closed itself. */
export async function startWorker(settings: WorkerSettings, onExpired: () => void): Promise<Worker> {
  // Node's threads start with the first file operation that needs them, and without room for them the process dies: so not later, when children took it all.
  const threads = new Promise((resolve) => fs.stat('/', resolve))
  putOffCollection(START_MS)
  // The gateway answers while the rest is being done.
  const { forwards, gateway, probed } = await openWayOut(settings)
  const tag = `${process.pid}-${Date.now().toString(36)}`
  const pipes = createChildPipes(settings.pipes && takeHandedPipes(settings.pipes))
  const confinement = createConfinement(settings.roots)
  const base = { PATH: DEFAULT_PATH, ...(settings.inheritEnv === true && ownEnvironment()) }
  let marks = 0
  let expiry: NodeJS.Timeout | undefined

  const processes = createProcesses(pipes, tag)
  const context: WorkerContext & { defaults: WorkerContext['defaults']; token: string } = {
    pipes,
    confinement,
    processes,
    commands: new Map(),
    defaults: { cwd: confinement.rootDir, env: { ...base, ...settings.env } },
    token: settings.token,
    setToken: (token) => {
      context.token = token
    },
    nextMark: () => `${tag}.${++marks}.`,
    setEnvironment: (env) => {
      context.defaults = { ...context.defaults, env: { ...base, ...env } }
    },
    setGatewayToken: (token, cutTunnels) => {
      if (gateway === undefined)
        throw new Fault('bad_request', 'this worker carries nothing to a gateway under a token')
      gateway.setToken(token, cutTunnels)
    },
    setTimeToLive: (milliseconds) => {
      clearTimeout(expiry)
      const expiresAtMs = Date.now() + milliseconds
      const look = (): void => {
        const left = expiresAtMs - Date.now()
        if (left > 0) return void (expiry = setTimeout(look, Math.min(left, MAX_TIMER_MS)))
        close()
        onExpired()
      }
      look()
    },
  }

  const server = createServer(context)
  const close = (): void => {
    clearTimeout(expiry)
    for (const listener of [server, ...forwards]) listener.close()
    void gateway?.close()
    server.closeAllConnections()
    for (const run of context.commands.values()) run?.cancel()
    processes.cancelAll()
    killTree(undefined, `${tag}.`)
    pipes.close()
  }

  const [report] = await Promise.all([probed, threads, listen(server, settings.listen)])
  if (settings.timeToLiveMs !== undefined) context.setTimeToLive(settings.timeToLiveMs)
  // What the first command needs, while nobody waits for it.
  setImmediate(() => void pipes.prepare())
  return { close, probed: report }
}

async function listen(server: net.Server, listen: WorkerSettings['listen']): Promise<void> {
  if ('path' in listen && fs.lstatSync(listen.path, { throwIfNoEntry: false })?.isSocket()) fs.unlinkSync(listen.path)
  const mask = process.umask(0o177)
  try {
    // Without the mode, which is not the server's.
    await listenAt(server, 'path' in listen ? { path: listen.path } : listen)
  } finally {
    process.umask(mask)
  }
  if ('path' in listen && listen.mode !== undefined) fs.chmodSync(listen.path, listen.mode)
}

/** Without what concerns this process alone. */
function ownEnvironment(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      (entry): entry is [string, string] => entry[1] !== undefined && !/^(NODE_|SALLYPORT_)/.test(entry[0]),
    ),
  )
}
