/** A machine as a worker is to the provider: the same methods, carried out by E2B's SDK and a few scripts inside. */
import type { WorkerClient } from '../../worker-client.ts'
import { PROTOCOL } from '../../worker/wire.ts'
import { commandEnvironment, straightEnvironment } from './command-environment.ts'
import { commandMethods } from './command-methods.ts'
import type { Machine } from './e2b-api.ts'
import { fileMethods } from './file-methods.ts'
import type { GatewayPlace } from './gateway-address.ts'
import { helperOf, type MachineContext } from './machine-context.ts'
import type { MachineFolders } from './prepare-machine.ts'
import { probeMachine } from './probe-machine.ts'
import type { WayOut } from './way-out.ts'

/** What a client is made of. */
export interface MachineClientOptions extends MachineFolders {
  readonly machine: Machine
  readonly gateway: GatewayPlace
  /** Of every command, with the way to a gateway at loopback in it. */
  readonly env: Readonly<Record<string, string>>
  readonly way: WayOut
}

/** The client, and what tells it that its machine is lost: what runs fails with it. */
export interface MachineClient {
  readonly client: WorkerClient
  readonly lose: (error: Error) => void
}

/** Bytes of output of all background processes together. */
const OUTPUT_BUDGET = 64 * 1024 * 1024

/** Makes one. It holds no connection open. */
export function createMachineClient(options: MachineClientOptions): MachineClient {
  const { machine, rootDir, spool, gateway, way } = options
  let { env } = options
  const startedAtMs = Date.now()
  const listeners = new Set<(error: Error) => void>()
  const environment = async () => {
    if (way.kind === 'socks5-proxy') return straightEnvironment(env)
    const present = await way.token()
    // Without a token nothing but the way is told: then the gateway says what is missing.
    return present === undefined ? env : commandEnvironment(env, gateway, present)
  }
  const context: MachineContext = {
    machine,
    rootDir,
    spool,
    environment,
    outputBudget: { used: 0, limit: OUTPUT_BUDGET },
    help: helperOf(machine, rootDir, spool),
    onLoss: (listener) => void listeners.add(listener),
    offLoss: (listener) => void listeners.delete(listener),
  }
  const { running, ...commands } = commandMethods(context)
  return {
    lose: (error) => {
      for (const listener of [...listeners]) listener(error)
    },
    client: {
      health: async ({ signal } = {}) => {
        await context.help('look', ['perl'], { signal })
        // There is no worker: these say so.
        return { protocol: PROTOCOL, pid: 0, node: 'none', rootDir, running: running(), uptimeMs: Date.now() - startedAtMs } // prettier-ignore
      },
      configure: async (configuration) => {
        if (configuration.env !== undefined) env = configuration.env
        return Promise.resolve()
      },
      probe: (probe) => probeMachine({ machine, gateway, way, environment }, probe),
      ...commands,
      ...fileMethods(context),
    },
  }
}
