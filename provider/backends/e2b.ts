/** Sandboxes as machines of E2B: its firewall or its proxy leads them to the gateway and to nothing else, and its SDK carries out what a worker would. */
import type { Backend, StartedSandbox, StartRequest } from '../backend.ts'
import type { EgressGrant, TakeToken } from '../egress/egress.ts'
import type { SandboxInfo } from '../sandbox.ts'
import { SandboxError } from '../sandbox-error.ts'
import { isSandboxId } from '../runtime-folder.ts'
import { lost } from '../worker-client/exchange.ts'
import { createE2bApi, type E2bApi, type Machine } from './e2b/e2b-api.ts'
import { type E2bOptions, resolveE2bOptions, type ResolvedE2bOptions } from './e2b/e2b-options.ts'
import { findGateway, type GatewayPlace, networkFor, proxyNetworkFor } from './e2b/gateway-address.ts'
import { capabilitiesOf } from './e2b/e2b-capabilities.ts'
import { failingClient } from './e2b/failing-client.ts'
import { endByLabels } from './e2b/end-by-labels.ts'
import { keepEnvironment, keptEnvironment } from './e2b/kept-environment.ts'
import { createMachineClient } from './e2b/machine-client.ts'
import { ALL, egressOf, gatewayOf, infoOf, labelsOfOne, machineLabels } from './e2b/machine-labels.ts'
import { type MachineFolders, prepareMachine } from './e2b/prepare-machine.ts'
import { lifeMs, watchMachine } from './e2b/watch-machine.ts'
import type { WayOut } from './e2b/way-out.ts'
import { afterMs } from './time-to-live.ts'

/** See {@link E2bOptions}. */
export type E2bBackendOptions = E2bOptions

/** All that it takes to end a machine, with tries. */
const UNDO_BUDGET_MS = 60_000
/** For a machine's first steps, beside the time that it is given. */
const SETUP_MS = 60_000

/** Makes the backend; it asks nothing of E2B. @throws TypeError for a caller's mistake */
export function createE2bBackend(given: E2bBackendOptions): Backend {
  const options = resolveE2bOptions(given)
  const api = createE2bApi(options)

  return {
    name: 'e2b',
    environment: 'linux-namespace',
    egress: options.egress === 'socks5-proxy' ? 'handle' : 'token',
    undoBudgetMs: UNDO_BUDGET_MS,
    capabilities: capabilitiesOf(options),
    check: async () => {
      await api.load()
      await api.check()
    },
    start: (request) => start(api, options, request),

    list: async (): Promise<readonly SandboxInfo[]> => {
      const machines = await api.list(ALL)
      return machines.flatMap((machine) => infoOf(machine) ?? [])
    },

    attach: async (id): Promise<StartedSandbox | undefined> => {
      if (!isSandboxId(id)) return undefined
      const [listed] = await api.list(labelsOfOne(id))
      if (listed === undefined) return undefined
      const expiresAtMs = infoOf(listed)?.expiresAtMs
      const machine = await api.connect(listed.machineId, lifeMs(options.leaseMs, expiresAtMs))
      if (machine === undefined) return undefined
      try {
        const gateway = gatewayOf(listed)
        if (gateway === undefined) throw lost(new Error('the labels of the machine are not as they were made'))
        if (egressOf(listed) !== options.egress) throw otherEgress(egressOf(listed))
        const folders = await prepareMachine(machine, { gateway, isNew: false, template: options.template })
        const env = await keptEnvironment(machine, folders)
        return live(api, options, { machine, gateway, folders, env, expiresAtMs })
      } catch (error) {
        return { client: failingClient(error instanceof Error ? error : new Error('unknown fault')), rootDir: '/', ended: new Promise(() => undefined), stop: () => api.end(machine.sandboxId) } // prettier-ignore
      }
    },
  }
}

async function start(api: E2bApi, options: ResolvedE2bOptions, request: StartRequest): Promise<StartedSandbox> {
  const { id, grant, env, timeoutMs, signal, undo } = request
  // Said earlier to whoever made the provider.
  if (grant === undefined) throw new TypeError('a sandbox of E2B has no way to a gateway of this machine')
  const gateway = await findGateway(grant.gateway, options)
  if (grant.ca !== undefined)
    throw new SandboxError(
      'SALLYPORT_SANDBOX_NOT_SUPPORTED',
      'commands in a machine of E2B speak to the gateway themselves, and can not be told of an authority of your own: leave `ca` out, and give the gateway a certificate that everybody trusts',
    )
  const lifeFor = (ms: number | undefined) => (ms === undefined ? undefined : Date.now() + ms)
  const handle = options.egress === 'socks5-proxy' ? await grant.token() : undefined
  // Also where the reply to the request is lost: then the machine is found by its labels.
  signal?.throwIfAborted()
  const made: { machine?: Machine } = {}
  undo('machine', () =>
    made.machine === undefined ? endByLabels(api, labelsOfOne(id)) : api.end(made.machine.sandboxId),
  )
  const machine = await api.create({
    metadata: machineLabels(request, gateway, options.egress),
    network: handle === undefined ? networkFor(gateway) : proxyNetworkFor(gateway, handle),
    timeoutMs: lifeMs(options.leaseMs, lifeFor(timeoutMs === undefined ? undefined : timeoutMs + SETUP_MS)),
  })
  made.machine = machine
  signal?.throwIfAborted()
  const folders = await prepareMachine(machine, { gateway, isNew: true, template: options.template, signal })
  await keepEnvironment(machine, folders, env)
  signal?.throwIfAborted()
  // Its time begins when it can be used; until now the platform has given it some more.
  const expiresAtMs = lifeFor(timeoutMs)
  if (expiresAtMs !== undefined) await api.extend(machine.sandboxId, lifeMs(options.leaseMs, expiresAtMs))
  return live(api, options, { machine, gateway, folders, env, expiresAtMs, grant, handle })
}

interface LiveMachine {
  readonly machine: Machine
  readonly gateway: GatewayPlace
  readonly folders: MachineFolders
  readonly env: Readonly<Record<string, string>>
  readonly expiresAtMs: number | undefined
  /** Undefined for one that another process made. */
  readonly grant?: EgressGrant
  /** That the platform has already. */
  readonly handle?: string | undefined
}

function live(api: E2bApi, options: ResolvedE2bOptions, parts: LiveMachine): StartedSandbox {
  const { machine, gateway, folders, env, expiresAtMs } = parts
  const { way, take } = wayOf(api, options, parts)
  const { client, lose } = createMachineClient({ machine, gateway, env, way, ...folders })
  const watch = watchMachine({ api, machine, leaseMs: options.leaseMs, expiresAtMs, onLoss: lose })
  let stopping: Promise<void> | undefined
  const stop = (): Promise<void> => {
    clock?.cancel()
    watch.stop()
    lose(lost(new Error('the sandbox was ended')))
    return (stopping ??= api.end(machine.sandboxId).catch((error: unknown) => {
      stopping = undefined
      throw error
    }))
  }
  const ended = Promise.withResolvers<undefined>()
  void watch.ended.then(() => ended.resolve(undefined))
  // The platform ends it at its time too, in whole seconds, also when this process is gone.
  const clock =
    expiresAtMs === undefined
      ? undefined
      : afterMs(expiresAtMs - Date.now(), () => {
          void stop()
            .catch(() => undefined)
            .then(() => ended.resolve(undefined))
        })
  const itself = { host: gateway.address, port: gateway.port }
  return {
    client,
    rootDir: folders.rootDir,
    // Where the platform carries connections to the gateway, nobody gets to it past that.
    directTargets: way.kind === 'socks5-proxy' ? [...options.directTargets, itself] : options.directTargets,
    announced: true,
    takeToken: take,
    ended: ended.promise,
    stop,
  }
}

/** How commands get to the gateway, and what is done with each further credential. */
function wayOf(
  api: E2bApi,
  { egress }: ResolvedE2bOptions,
  { machine, gateway, grant, handle }: LiveMachine,
): { readonly way: WayOut; readonly take: TakeToken } {
  if (egress === 'gateway-address') {
    let given: string | undefined
    const take = (token: string): Promise<void> => {
      given = token
      return Promise.resolve()
    }
    return { way: { kind: egress, token: grant?.token ?? (() => Promise.resolve(given)) }, take }
  }
  let inForce = handle
  const take = async (next: string): Promise<void> => {
    if (next === inForce) return
    // Until it is known which one the platform has, it is told again.
    inForce = undefined
    await api.setNetwork(machine.sandboxId, proxyNetworkFor(gateway, next))
    inForce = next
  }
  return { way: { kind: egress, decisionOn: grant?.decisionOn }, take }
}

function otherEgress(made: string): SandboxError {
  return new SandboxError(
    'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    `the sandbox was made with \`egress: '${made.slice(0, 40)}'\`, and goes on with that alone`,
  )
}
