/** Starts what stands for E2B's host in the way of a machine's connections: `egress-redirector.py`, which says what it does. */
import { spawn } from 'node:child_process'
import path from 'node:path'
import readline from 'node:readline'
import type { E2bNetwork } from './contract-server.ts'

/** One that runs. */
export interface Redirector {
  readonly tcpPort: number
  /** Of what stands for the name server. */
  readonly udpPort: number
  /** Resolves once connections obey; those that are open stay. */
  readonly set: (network: E2bNetwork) => Promise<void>
  readonly stop: () => Promise<void>
}

const PROGRAM = path.join(import.meta.dirname, 'egress-redirector.py')

/** An allowed address is open at `onlyPort` alone, if it is given. */
export async function startRedirector(network: E2bNetwork, onlyPort?: number): Promise<Redirector> {
  const child = spawn('python3', [PROGRAM], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  child.stdin.on('error', () => undefined)
  const lines = readline.createInterface(child.stdout)[Symbol.asyncIterator]()
  const said = async (word: string): Promise<string> => {
    const { value, done } = await lines.next()
    if (done === true || !value.startsWith(word)) throw new Error(`the redirector said \`${String(value)}\``)
    return value
  }
  const set = async (next: E2bNetwork): Promise<void> => {
    child.stdin.write(`${JSON.stringify({ ...next, onlyPort })}\n`)
    await said('set')
  }
  const stop = async (): Promise<void> => {
    child.stdin.end()
    child.kill('SIGKILL')
    await ended
  }
  try {
    const [, tcpPort, udpPort] = (await said('listens')).split(' ').map(Number)
    await set(network)
    return { tcpPort: tcpPort ?? 0, udpPort: udpPort ?? 0, set, stop }
  } catch (error) {
    await stop()
    throw error
  }
}
