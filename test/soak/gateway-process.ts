/** A gateway in a process of its own, or in several: reloads at SIGHUP, stops at SIGTERM, and at SIGUSR2 collects and prints what its heap holds. */
import { createGateway, type GatewayOptions, loadConfig } from '../../proxy/index.ts'
import { createSupervisedGateway } from '../../proxy/workers/supervised-gateway.ts'

const load = () => loadConfig({ file: process.argv[2]! })
const gateway = await create({ config: await load() })
await gateway.listen()
process.on('SIGHUP', () => void gateway.reload(load).catch((error: unknown) => console.error('reload', error)))
process.on('SIGUSR2', () => {
  globalThis.gc?.()
  setTimeout(() => {
    globalThis.gc?.()
    process.stdout.write(`heap ${process.memoryUsage().heapUsed}\n`)
  }, 200)
})
process.once('SIGTERM', () => void gateway.close().then(() => process.exit(0)))
process.stdout.write('listening\n')

async function create(options: GatewayOptions) {
  if (options.config.workers === 1) return createGateway(options)
  const { gateway: supervised, failed } = await createSupervisedGateway(options)
  void failed.then((error) => {
    console.error(error)
    process.exit(1)
  })
  return supervised
}
