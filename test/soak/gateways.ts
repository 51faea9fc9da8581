/** A gateway of a soak: starts, kills and asks it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import type net from 'node:net'
import path from 'node:path'
import { stringify } from 'yaml'
import type { ConfigInput } from '../../proxy/index.ts'
import type { MemorySample } from './memory.ts'

/** One of them. */
export interface SoakGateway {
  readonly name: string
  readonly proxy: net.NetConnectOpts
  /** What it printed on standard error so far, line by line. */
  readonly errors: () => readonly string[]
  readonly start: () => Promise<void>
  /** Reads a configuration again that differs from the one before. */
  readonly reload: (document: ConfigInput) => void
  /** `kill -9`; resolves when it is gone. */
  readonly kill: () => Promise<void>
  /** `kill -9` of one of its workers; resolves when another one serves in its place. */
  readonly killWorker: () => Promise<void>
  /** In order; resolves with the exit code. */
  readonly stop: () => Promise<number | null>
  /** After a collection. Of the supervising process, where there are workers. */
  readonly memory: () => Promise<MemorySample>
}

/** With a niceness, beside others that have none, a start of a second of processor time takes minutes. */
const PATIENCE_MS = 300_000

/**
 * Below `folder`, with a configuration of its own; `document` is common to all. With a port it has two workers, which take no unix socket.
 */
export function soakGateway(folder: string, name: string, document: ConfigInput, port?: number): SoakGateway {
  const file = path.join(folder, `${name}.yaml`)
  const socket = path.join(folder, `${name}.proxy`)
  const write = ({ audit, ...others }: ConfigInput): void => {
    const listen = { proxy: port === undefined ? `unix:${socket}` : `127.0.0.1:${port}`, admin: 'off' }
    const whole = {
      ...others,
      listen,
      audit: { ...audit, instance: name },
      ...(port === undefined ? {} : { workers: 2 }),
    }
    fs.writeFileSync(`${file}.next`, stringify(whole))
    fs.renameSync(`${file}.next`, file)
  }
  write(document)
  let child: ChildProcess | undefined
  // However the soak ends.
  process.once('exit', () => child?.kill('SIGKILL'))
  let errors = ''
  let printed = ''
  const ended = async () => {
    const running = child
    if (running !== undefined && running.exitCode === null && running.signalCode === null) await once(running, 'exit')
    return running?.exitCode ?? null
  }
  const until = async <T>(what: string, look: () => T | undefined): Promise<T> => {
    for (const deadline = Date.now() + PATIENCE_MS; Date.now() < deadline;) {
      const found = look()
      if (found !== undefined) return found
      if (child?.exitCode !== null) throw new Error(`gateway ${name} ended:\n${errors}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    throw new Error(`gateway ${name}: ${what} took more than ${PATIENCE_MS / 1000} seconds`)
  }
  const said = (pattern: RegExp) => until(pattern.source, () => pattern.exec(printed) ?? undefined)
  const workers = () =>
    fs
      .readFileSync(`/proc/${child?.pid}/task/${child?.pid}/children`, 'utf8')
      .split(' ')
      .filter((pid) => pid.trim() !== '')
  return {
    name,
    proxy: port === undefined ? { path: socket } : { host: '127.0.0.1', port },
    errors: () => errors.split('\n').filter((line) => line !== ''),
    start: async () => {
      printed = ''
      child = spawn(process.execPath, ['--expose-gc', path.join(import.meta.dirname, 'gateway-process.ts'), file])
      child.stdout?.on('data', (text) => (printed += String(text)))
      child.stderr?.on('data', (text) => (errors += String(text)))
      await said(/listening/)
    },
    reload: (next) => {
      write(next)
      child?.kill('SIGHUP')
    },
    kill: async () => {
      child?.kill('SIGKILL')
      await ended()
    },
    killWorker: async () => {
      const before = workers()
      const serving = listeners(port)
      process.kill(Number(before[Math.floor(Math.random() * before.length)]), 'SIGKILL')
      await until('a new worker', () => {
        const now = workers()
        const isAnother = now.length === before.length && now.some((pid) => !before.includes(pid))
        return (isAnother && listeners(port) >= serving) || undefined
      })
    },
    stop: async () => {
      child?.kill('SIGTERM')
      return ended()
    },
    memory: async () => {
      printed = ''
      child?.kill('SIGUSR2')
      const [, heap] = await said(/heap (\d+)/)
      const status = fs.readFileSync(`/proc/${child?.pid}/status`, 'utf8')
      return {
        heapBytes: Number(heap),
        residentBytes: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024,
        descriptors: fs.readdirSync(`/proc/${child?.pid}/fd`).length,
      }
    },
  }
}

/** Sockets that listen on a port of this machine: a worker has several. */
function listeners(port = 0): number {
  const local = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')} 00000000:0000 0A`
  return fs.readFileSync('/proc/net/tcp', 'utf8').split(local).length - 1
}
