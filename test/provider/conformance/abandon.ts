/** A host that makes a sandbox, says its id, and waits to be killed. A program of its own: its argument is JSON of a backend's configuration and a runtime root. */
import { type BackendConfig, createSandboxProvider } from '../../../provider/index.ts'

const { config, runtimeRoot } = JSON.parse(process.argv[2] ?? '') as {
  readonly config: BackendConfig
  readonly runtimeRoot: string
}
const provider = createSandboxProvider({
  backend: config,
  runtimeRoot,
  gateway: { machineSets: { sets: { npm: [], apt: [] }, notes: [] } },
  defaultEgress: { kind: 'allow-all' },
})
const sandbox = await provider.create()
console.log(sandbox.id)
setInterval(() => undefined, 60_000)
