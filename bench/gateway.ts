/** The gateway under test, from a configuration file: `node bench/gateway.ts FILE`. */
import { collectWhenQuiet } from '../proxy/collect-when-quiet.ts'
import { createGateway, loadConfig } from '../proxy/index.ts'

const gateway = await createGateway({ config: await loadConfig({ file: process.argv[2]! }) })
await gateway.listen()
collectWhenQuiet()
process.once('SIGTERM', () => void gateway.close().then(() => process.exit(0)))
