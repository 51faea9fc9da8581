/** A gateway in a process of its own: reloads at SIGHUP, stops at SIGTERM, and at SIGUSR2 collects and prints what its heap holds. */
import { createGateway, loadConfig } from '../../proxy/index.ts'

const load = () => loadConfig({ file: process.argv[2]! })
const gateway = await createGateway({ config: await load() })
await gateway.listen()
process.on('SIGHUP', () => void gateway.reload(load).catch(() => undefined))
process.on('SIGUSR2', () => {
  globalThis.gc?.()
  setTimeout(() => {
    globalThis.gc?.()
    process.stdout.write(`heap ${process.memoryUsage().heapUsed}\n`)
  }, 200)
})
process.once('SIGTERM', () => void gateway.close().then(() => process.exit(0)))
process.stdout.write('listening\n')
