/** A background process of a sandbox: what the caller holds. */
import type { SandboxProcess } from './sandbox.ts'
import type { WorkerClient } from './worker-client.ts'

/** `alive` runs a request while the sandbox is there. */
export function liveProcess(
  client: WorkerClient,
  id: string,
  alive: <T>(action: () => Promise<T>) => Promise<T>,
): SandboxProcess {
  return {
    id,
    output: () => client.output(id),
    write: (data) => alive(() => client.writeStdin(id, data)),
    closeStdin: () => alive(() => client.closeStdin(id)),
    wait: (options = {}) => alive(() => client.wait(id, options)),
    kill: (signal = 'SIGKILL') => alive(() => client.signal(id, signal)),
  }
}
