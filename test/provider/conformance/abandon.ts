/** A host that makes a sandbox, says its id, and waits to be killed. A program of its own: its argument is JSON of an {@link AbandonedHost}. */
import path from 'node:path'
import { startReachableGateway } from '../../../provider/conformance/reachable-gateway.ts'
import { type BackendConfig, createSandboxProvider } from '../../../provider/index.ts'

export interface AbandonedHost {
  readonly config: BackendConfig
  readonly runtimeRoot: string
  /** Where its gateway listens, if its sandboxes are elsewhere. */
  readonly gatewayAddress: string | undefined
  readonly transparentEgress: boolean
}

const { config, runtimeRoot, gatewayAddress, transparentEgress } = JSON.parse(process.argv[2] ?? '') as AbandonedHost
const machineSets = { sets: { npm: [], apt: [] }, notes: [] }
const reachable =
  gatewayAddress === undefined
    ? undefined
    : await startReachableGateway(gatewayAddress, { config: { log: { level: 'silent' } }, machineSets, parentFolder: path.dirname(runtimeRoot) }) // prettier-ignore
const provider = createSandboxProvider({
  backend: config,
  runtimeRoot,
  gateway: (transparentEgress ? reachable?.forHandles : reachable?.remote) ?? { machineSets },
  defaultEgress: { kind: 'allow-all' },
})
const sandbox = await provider.create()
console.log(sandbox.id)
setInterval(() => undefined, 60_000)
