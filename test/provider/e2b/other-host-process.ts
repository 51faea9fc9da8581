/** A host that makes a sandbox, says its id, and waits to be killed. A program of its own: its argument is JSON of the options of its provider. */
import { createSandboxProvider, type SandboxProviderOptions } from '../../../provider/index.ts'

const provider = createSandboxProvider(JSON.parse(process.argv[2] ?? '') as SandboxProviderOptions)
const sandbox = await provider.create()
console.log(sandbox.id)
setInterval(() => undefined, 60_000)
