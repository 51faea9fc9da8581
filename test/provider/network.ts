/**
 * Two network namespaces of the test's own, so that a way out is a real one and yet leads nowhere: `host`, where sandboxes are made, and `internet`,
 * which it is connected to and where public, private and metadata addresses answer.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Services } from './services.ts'

/** Addresses of `internet`. */
export const OUTSIDE = {
  public4: '192.0.2.1',
  public6: '2001:db8:77::1',
  metadata: '169.254.169.254',
  nameServer: '198.51.100.53',
} as const

/** Addresses of `host` besides loopback. */
export const HOST = { public4: '192.0.2.10', public6: '2001:db8:77::10' } as const

export interface TestNetwork {
  /** Command line that runs what follows it in a namespace. */
  readonly inHost: readonly string[]
  readonly inInternet: readonly string[]
  /** Starts services; they end with the network. */
  serve(where: 'host' | 'internet', services: Services): Promise<void>
  close(): Promise<void>
}

/** Needs root. */
export async function createNetwork(): Promise<TestNetwork> {
  const children: ChildProcess[] = []
  const holder = async (): Promise<string> => {
    const child = spawn('unshare', ['--net', 'sh', '-c', 'echo ready; exec cat'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    children.push(child)
    await ready(child)
    return String(child.pid)
  }
  const [host, internet] = [await holder(), await holder()]
  const inside = (pid: string): readonly string[] => ['nsenter', '--target', pid, '--net', '--']
  const ip = async (pid: string, ...commands: readonly string[]): Promise<void> => {
    for (const command of commands)
      await promisify(execFile)('nsenter', ['--target', pid, '--net', '--', 'ip', ...command.split(' ')])
  }
  await ip(host, `link add wall0 type veth peer name wall1 netns ${internet}`)
  await ip(
    internet,
    'link set lo up',
    'link set wall1 up',
    ...[`${OUTSIDE.public4}/24`, `${OUTSIDE.metadata}/32`, `${OUTSIDE.nameServer}/32`].map(
      (address) => `address add ${address} dev wall1`,
    ),
    `address add ${OUTSIDE.public6}/64 dev wall1 nodad`,
  )
  await ip(
    host,
    'link set lo up',
    'link set wall0 up',
    `address add ${HOST.public4}/24 dev wall0`,
    `address add ${HOST.public6}/64 dev wall0 nodad`,
    `route add default via ${OUTSIDE.public4}`,
    `route add default via ${OUTSIDE.public6}`,
  )

  return {
    inHost: inside(host),
    inInternet: inside(internet),
    serve: async (where, services) => {
      const [program, ...args] = inside(where === 'host' ? host : internet)
      const child = spawn(
        program ?? '',
        [...args, process.execPath, path.join(import.meta.dirname, 'services.ts'), JSON.stringify(services)],
        {
          stdio: ['pipe', 'pipe', 'inherit'],
        },
      )
      children.push(child)
      await ready(child)
    },
    close: async () => {
      await Promise.all(children.reverse().map((child) => ended(child)))
    },
  }
}

function ready(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`a helper of the test network ended with ${String(code)}`)))
    child.stdout?.once('data', () => {
      child.removeAllListeners('exit')
      resolve()
    })
  })
}

/** Ends when its input does. */
function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve()
  return new Promise((resolve) => {
    child.once('exit', () => resolve())
    child.stdin?.end()
  })
}
