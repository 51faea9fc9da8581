/**
 * A gateway whose event loop is watched from inside: `node bench/loop-gateway.ts FILE SOCKET`. Whoever connects to the socket is told the longest time that nothing
 * else had a turn since the last one who did. Without a FILE (`-`) nothing but the watch runs: what the machine does to a process by itself.
 */
import net from 'node:net'
import { monitorEventLoopDelay, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks'
import { createGateway, loadConfig } from '../proxy/index.ts'

/** What is told; all in milliseconds. */
export interface LoopReading {
  /** By Node's own histogram, other load of the machine included. */
  readonly delayMs: number
  /** The most processor time of this thread between two ticks of a clock of a millisecond: the longest turn, whatever else ran on the machine. */
  readonly turnCpuMs: number
  /** Of that turn, by the clock: collecting garbage. */
  readonly turnGcMs: number
}

const file = process.argv[2] ?? '-'
if (file !== '-') {
  const load = () => loadConfig({ file })
  const gateway = await createGateway({ config: await load(), reload: async () => gateway.reload(load) })
  await gateway.listen()
  process.once('SIGTERM', () => void gateway.close().then(() => process.exit(0)))
}
const delays = monitorEventLoopDelay({ resolution: 1 })
delays.enable()
let longest = { cpuMs: 0, from: 0, to: 0 }
let before = { cpuMs: cpuMs(), at: performance.now() }
setInterval(() => {
  const now = { cpuMs: cpuMs(), at: performance.now() }
  if (now.cpuMs - before.cpuMs > longest.cpuMs)
    longest = { cpuMs: now.cpuMs - before.cpuMs, from: before.at, to: now.at }
  before = now
}, 1)
let collections: PerformanceEntry[] = []
const observer = new PerformanceObserver((list) => collections.push(...list.getEntries()))
observer.observe({ entryTypes: ['gc'] })
net
  .createServer((socket) => {
    const reading: LoopReading = { delayMs: delays.max / 1e6, turnCpuMs: longest.cpuMs, turnGcMs: gcMs(longest) }
    socket.on('error', () => socket.destroy()).end(JSON.stringify(reading))
    delays.reset()
    longest = { cpuMs: 0, from: 0, to: 0 }
    collections = []
  })
  .listen(process.argv[3])

function cpuMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

function gcMs({ from, to }: { readonly from: number; readonly to: number }): number {
  const within = collections.filter(({ startTime }) => startTime >= from && startTime <= to)
  return within.reduce((sum, { duration }) => sum + duration, 0)
}
