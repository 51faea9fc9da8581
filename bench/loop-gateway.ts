/**
 * A gateway whose event loop is watched from inside: `node bench/loop-gateway.ts FILE SOCKET`. Whoever connects to the socket is told the longest time that nothing
 * else had a turn since the last one who did. Without a FILE (`-`) nothing but the watch runs: what the machine does to a process by itself.
 */
import net from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { createGateway, loadConfig } from '../proxy/index.ts'

/** What is told; all in milliseconds. */
export interface LoopReading {
  /** By Node's own histogram, other load of the machine included. */
  readonly delayMs: number
  /** The most processor time of this thread between two ticks of a clock of a millisecond: the longest turn, whatever else ran on the machine. */
  readonly turnCpuMs: number
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
let turnCpuMs = 0
let before = cpuMs()
setInterval(() => {
  const now = cpuMs()
  turnCpuMs = Math.max(turnCpuMs, now - before)
  before = now
}, 1)
net
  .createServer((socket) => {
    const reading: LoopReading = { delayMs: delays.max / 1e6, turnCpuMs }
    socket.on('error', () => socket.destroy()).end(JSON.stringify(reading))
    delays.reset()
    turnCpuMs = 0
  })
  .listen(process.argv[3])

function cpuMs(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}
