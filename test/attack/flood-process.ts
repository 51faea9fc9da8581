/** A gateway from a configuration file that says, when asked by SIGUSR2, how much memory it holds after a collection. Run with `--expose-gc`. */
import { createGateway, loadConfig } from '../../proxy/index.ts'

const gateway = await createGateway({ config: await loadConfig({ file: process.argv[2]! }) })
await gateway.listen()
process.on('SIGUSR2', () => {
  ;(globalThis as unknown as { gc: () => void }).gc()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  process.stdout.write(`${Math.round((heapUsed + arrayBuffers) / 1024)}\n`)
})
process.once('SIGTERM', () => void gateway.close().then(() => process.exit(0)))
