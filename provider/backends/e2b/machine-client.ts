/** A machine as a worker is to the provider: the same methods, carried out by E2B's SDK and a few scripts inside. */
import type { WorkerClient, WorkerProbe, WorkerProbeReport } from '../../worker-client.ts'
import { malformed } from '../../worker-client/lines.ts'
import { PROTOCOL } from '../../worker/wire.ts'
import { basicCredentials, commandEnvironment } from './command-environment.ts'
import { commandMethods } from './command-methods.ts'
import type { Machine } from './e2b-api.ts'
import { fileMethods } from './file-methods.ts'
import type { GatewayPlace } from './gateway-address.ts'
import { helperOf, type MachineContext } from './machine-context.ts'
import { runScript } from './machine-script.ts'
import type { MachineFolders } from './prepare-machine.ts'
import { PROBE_SCRIPT } from './probe-script.ts'

/** What a client is made of. */
export interface MachineClientOptions extends MachineFolders {
  readonly machine: Machine
  readonly gateway: GatewayPlace
  /** Of every command, with the way to a gateway at loopback in it. */
  readonly env: Readonly<Record<string, string>>
  /** A token for the gateway; none where another process has the way out. */
  readonly token: () => Promise<string | undefined>
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
  const { machine, rootDir, spool, gateway, token } = options
  let { env } = options
  const startedAtMs = Date.now()
  const listeners = new Set<(error: Error) => void>()
  // Without a token nothing but the way is told: then the gateway says what is missing.
  const environment = async () => {
    const present = await token()
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
      probe: async (probe) => readProbe(await runProbe(context, gateway, probe, await token()), probe),
      ...commands,
      ...fileMethods(context),
    },
  }
}

function runProbe(
  { machine, environment }: MachineContext,
  { protocol, address, port }: GatewayPlace,
  { tcp, udp, destination, timeoutMs = 1_000 }: WorkerProbe,
  token: string | undefined,
): Promise<readonly string[]> {
  const targets = [...tcp.map((each) => ['tcp', each] as const), ...udp.map((each) => ['udp', each] as const)]
  const words = [
    String(Math.max(1, Math.ceil(timeoutMs / 1_000))),
    destination,
    protocol === 'https:' ? '1' : '',
    address,
    String(port),
    ...targets.flatMap(([kind, target]) => [kind, target.host, String(target.port)]),
  ]
  return environment().then(
    (envs) =>
    runScript(machine, { script: PROBE_SCRIPT, words, envs: { ...envs, ...(token !== undefined && { SALLYPORT_PROBE: basicCredentials(token) }) } }), // prettier-ignore
  )
}

function readProbe(lines: readonly string[], { tcp, udp }: WorkerProbe): WorkerProbeReport {
  const outcomes = lines.slice(0, tcp.length + udp.length)
  const [, first = '', second = ''] = /^gateway (\S+) ?(\S*)$/.exec(lines[outcomes.length] ?? '') ?? []
  if (outcomes.length !== tcp.length + udp.length || !outcomes.every((each) => /^[A-Za-z0-9_]{1,40}$/.test(each)))
    throw malformed('the outcomes of a probe are not there')
  const isStatus = /^\d{3}$/.test(first)
  return {
    tcp: outcomes.slice(0, tcp.length),
    udp: outcomes.slice(tcp.length),
    gateway: isStatus
      ? { status: Number(first), ...(second !== '' && { reason: second }) }
      : { error: /^[A-Za-z0-9_]{1,40}$/.test(second) ? second : 'unknown' },
  }
}
