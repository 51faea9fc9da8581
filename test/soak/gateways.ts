/** The two gateways of a soak: starts, kills and asks them. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import path from 'node:path'
import { stringify } from 'yaml'
import type { ConfigInput } from '../../proxy/index.ts'

/** One of them. */
export interface SoakGateway {
  readonly name: string
  /** A unix socket. */
  readonly proxy: string
  /** What it printed on standard error so far. */
  readonly errors: () => string
  readonly start: () => Promise<void>
  readonly signal: (name: NodeJS.Signals) => void
  /** `kill -9`; resolves when it is gone. */
  readonly kill: () => Promise<void>
  /** In order; resolves with the exit code. */
  readonly stop: () => Promise<number | null>
  /** Bytes in use after a collection. */
  readonly heapBytes: () => Promise<number>
  readonly residentBytes: () => number
}

/** Below `folder`, with a configuration of its own; `document` is common to all. */
export function soakGateway(folder: string, name: string, document: ConfigInput): SoakGateway {
  const file = path.join(folder, `${name}.yaml`)
  const proxy = path.join(folder, `${name}.proxy`)
  const { audit } = document
  const listen = { proxy: `unix:${proxy}`, admin: 'off' }
  fs.writeFileSync(file, stringify({ ...document, listen, audit: { ...audit, instance: name } }))
  let child: ChildProcess | undefined
  let errors = ''
  let printed = ''
  const ended = async () => {
    const running = child
    if (running !== undefined && running.exitCode === null && running.signalCode === null) await once(running, 'exit')
    return running?.exitCode ?? null
  }
  const until = async (pattern: RegExp): Promise<string> => {
    for (const deadline = Date.now() + 60_000; Date.now() < deadline;) {
      const found = pattern.exec(printed)
      if (found !== null) return found[1] ?? ''
      if (child?.exitCode !== null) throw new Error(`gateway ${name} ended:\n${errors}`)
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    throw new Error(`gateway ${name} did not say ${pattern.source} within a minute`)
  }
  return {
    name,
    proxy,
    errors: () => errors,
    start: async () => {
      printed = ''
      child = spawn(process.execPath, ['--expose-gc', path.join(import.meta.dirname, 'gateway-process.ts'), file])
      child.stdout?.on('data', (text) => (printed += String(text)))
      child.stderr?.on('data', (text) => (errors += String(text)))
      await until(/listening/)
    },
    signal: (signal) => void child?.kill(signal),
    kill: async () => {
      child?.kill('SIGKILL')
      await ended()
    },
    stop: async () => {
      child?.kill('SIGTERM')
      return ended()
    },
    heapBytes: async () => {
      printed = ''
      child?.kill('SIGUSR2')
      return Number(await until(/heap (\d+)/))
    },
    residentBytes: () =>
      Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${child?.pid}/status`, 'utf8'))?.[1]) * 1024,
  }
}
