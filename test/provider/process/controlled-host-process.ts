/** A host in a process of its own: makes one sandbox behind a gateway in yet another process, says so, and waits to be killed. */
import { createSandboxProvider } from '../../../provider/index.ts'

const [runtimeRoot = '', admin = '', tokenFile = '', host = ''] = process.argv.slice(2)
const provider = createSandboxProvider({
  backend: { tier: 'process' },
  runtimeRoot,
  gateway: { admin, tokenFile, leaseSeconds: 2 },
  defaultEgress: { kind: 'static', allowedHosts: [host] },
})
const sandbox = await provider.create()
console.log(`made ${sandbox.id}`)
process.stdin.resume()
