/** Starts a real worker on a unix socket, outside of any sandbox, and a client of it. */
import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { createWorkerClient, type WorkerClient } from '../../../provider/worker-client.ts'
import { workerFile } from '../../../provider/worker-file.ts'
import { killTree } from '../../../provider/worker/process-tree.ts'
import type { WorkerSettings } from '../../../provider/worker/settings.ts'

export interface StartedWorker extends AsyncDisposable {
  readonly client: WorkerClient
  readonly token: string
  readonly process: ChildProcess
  readonly pid: number
  /** Holds everything, also what is outside of the roots. */
  readonly folder: string
  /** The writable root. */
  readonly root: string
  readonly socket: string
  readonly connect: () => Promise<net.Socket>
}

export interface StartOptions extends Partial<WorkerSettings> {
  /** Put before `node worker.cjs`. */
  readonly wrapper?: readonly string[]
  readonly silenceMs?: number
}

export async function startWorker({ wrapper = [], silenceMs, ...settings }: StartOptions = {}): Promise<StartedWorker> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-worker-'))
  fs.chmodSync(folder, 0o777)
  const root = path.join(folder, 'root')
  fs.mkdirSync(root)
  fs.chmodSync(root, 0o777)
  const socket = path.join(folder, 'w.sock')
  const token = randomBytes(24).toString('hex')
  const [command, ...args] = [...wrapper, process.execPath, await workerFile(), '-']
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'], env: { PATH: process.env['PATH'] } })
  const whole: WorkerSettings = {
    token,
    listen: { path: socket },
    roots: [{ path: root, writable: true }],
    env: { PATH: process.env['PATH'] ?? '', HOME: root },
    announce: true,
    endWithStdin: true,
    ...settings,
  }
  child.stdin.write(`${JSON.stringify(whole)}\n`)
  const [ready] = (await Promise.race([once(child.stdout, 'data'), once(child, 'exit').then(() => ['gone'])])) as [
    unknown,
  ]
  if (String(ready) !== 'ready\n') throw new Error('the worker did not start')
  const connect = async (): Promise<net.Socket> => {
    const connection = net.connect(socket)
    await once(connection, 'connect')
    return connection
  }
  const client = createWorkerClient({ connect, token, ...(silenceMs !== undefined && { silenceMs }) })
  return {
    client,
    token,
    process: child,
    pid: wrapper.length === 0 ? child.pid! : (await client.health()).pid,
    folder,
    root,
    socket,
    connect,
    async [Symbol.asyncDispose]() {
      const gone = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined
      child.kill('SIGCONT')
      child.stdin.destroy()
      const timer = setTimeout(() => child.kill('SIGKILL'), 10_000)
      await gone
      clearTimeout(timer)
      // What a worker leaves that was killed; without a namespace nothing else ends it.
      if (wrapper.length === 0) killTree(undefined, `${child.pid!}-`)
      fs.rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** Whether a process is there and not a zombie. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

/** Resolves when a condition holds, looked at on every turn of the event loop for as long as the test may run. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  limitMs = 20_000,
): Promise<void> {
  const endMs = performance.now() + limitMs
  while (!(await condition())) {
    if (performance.now() > endMs) throw new Error(`it never came about: ${what}`)
    await new Promise((resolve) => setImmediate(resolve))
  }
}

/** Most memory that a process ever held, bytes. */
export function peakMemory(pid: number): number {
  return Number(/VmHWM:\s+(\d+) kB/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) * 1024
}

/** Starts the peak anew. */
export function resetPeakMemory(pid: number): void {
  fs.writeFileSync(`/proc/${pid}/clear_refs`, '5')
}
