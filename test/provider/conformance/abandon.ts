/** A host that makes a sandbox, says its id, and waits to be killed. A program of its own: its argument is JSON of an {@link AbandonedHost}. */
import path from 'node:path'
import { startReachableGateway } from '../../../provider/conformance/reachable-gateway.ts'
import { type BackendConfig, createSandboxProvider } from '../../../provider/index.ts'

export interface AbandonedHost {
  readonly config: BackendConfig
  readonly runtimeRoot: string
  /** Where its gateway listens, if its sandboxes are elsewhere. */
  readonly gatewayAddress: string | undefined
}

const { config, runtimeRoot, gatewayAddress } = JSON.parse(process.argv[2] ?? '') as AbandonedHost
const machineSets = { sets: { npm: [], apt: [] }, notes: [] }
const provider = createSandboxProvider({
  backend: config,
  runtimeRoot,
  gateway:
    gatewayAddress === undefined
      ? { machineSets }
      : (await startReachableGateway(gatewayAddress, { config: { log: { level: 'silent' } }, machineSets, parentFolder: path.dirname(runtimeRoot) })).remote, // prettier-ignore
  defaultEgress: { kind: 'allow-all' },
})
const sandbox = await provider.create()
console.log(sandbox.id)
setInterval(() => undefined, 60_000)
