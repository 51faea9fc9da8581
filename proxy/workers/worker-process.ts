/** The program of a worker: the supervising process starts it, with the one channel between them as descriptor 3. */
import net from 'node:net'
import { collectWhenQuiet } from '../collect-when-quiet.ts'
import { runWorker } from './worker.ts'

/** Signals reach the whole group of processes; when a worker ends is the affair of the one that supervises. */
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined)

collectWhenQuiet()
await runWorker(new net.Socket({ fd: 3 }))
process.exit(0)
