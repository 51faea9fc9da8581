/**
 * Sandboxes as machines of Fly: microVMs with our worker in them. The platform holds them to one port, rules inside to one address; what starts first in the
 * image is root and loads the rules, and all that runs afterwards has no capability to change them.
 */
import { randomBytes } from 'node:crypto'
import type { Backend, InsideAddress, StartedSandbox } from '../backend.ts'
import type { EgressGrant } from '../egress/egress.ts'
import { isSandboxId } from '../runtime-folder.ts'
import type { SandboxCapabilities, SandboxInfo } from '../sandbox.ts'
import { createWorkerClient } from '../worker-client.ts'
import { type FlyMachinesOptions, checkFlyLimits, resolveFlyOptions } from './fly-machines/fly-options.ts'
import { createMachineWatch } from './fly-machines/machine-watch.ts'
import { ANY_SANDBOX, CHILD_ENVIRONMENT, identityIn, machineRequest, WORKER_PORT } from './fly-machines/machine-request.ts' // prettier-ignore
import { createMachinesApi, hasEnded, isPrivate6, type Machine, privateAddressOf } from './fly-machines/machines-api.ts'
import { ensurePolicy } from './fly-machines/network-policy.ts'
import { findMachine, makeMachine, type MachineStart, removeMachine, untilWorkerAnswers } from './fly-machines/start-machine.ts' // prettier-ignore
import { INSIDE } from './inside.ts'
import { PlatformError } from './platform/platform-error.ts'
import { workerLink } from './platform/worker-link.ts'
import { afterMs } from './time-to-live.ts'

/** See {@link FlyMachinesOptions}. */
export type FlyMachinesBackendOptions = FlyMachinesOptions

/** To destroy a machine, and to wait until it is gone. */
const UNDO_BUDGET_MS = 180_000

/** Makes the backend; it connects to nothing yet. @throws TypeError for a caller's mistake */
export function createFlyMachinesBackend(given: FlyMachinesBackendOptions): Backend {
  const options = resolveFlyOptions(given)
  const api = createMachinesApi(options)
  const watch = createMachineWatch(api, options.watchMs)

  const started = (machine: Machine, timeoutMs?: number): StartedSandbox => {
    const ended = watch.ended(machine.id)
    // The worker has this clock too, but a command may have stopped the worker.
    const clock = timeoutMs === undefined ? undefined : afterMs(timeoutMs, () => void stop().catch(() => undefined))
    let stopping: Promise<void> | undefined
    const stop = (): Promise<void> => {
      clock?.cancel()
      return (stopping ??= api.destroy(machine.id).then(
        () => watch.forget(machine.id),
        (error: unknown) => {
          stopping = undefined
          throw error
        },
      ))
    }
    void ended.then(() => clock?.cancel())
    return {
      rootDir: INSIDE.workspace,
      connect: workerLink(() => privateAddressOf(machine), WORKER_PORT),
      directTargets: options.directTargets,
      announced: true,
      ended,
      stop,
    }
  }

  return {
    name: 'fly-machines',
    environment: 'linux-namespace',
    capabilities: CAPABILITIES,
    egress: 'token',
    undoBudgetMs: UNDO_BUDGET_MS,
    check: api.checkApp,

    start: async (request) => {
      const { id, grant, signal, undo, timeoutMs } = request
      const limits = {
        memoryLimitMb: request.memoryLimitMb ?? options.memoryLimitMb,
        maxProcesses: request.maxProcesses ?? options.maxProcesses,
      }
      checkFlyLimits(limits)
      const gateway = gatewayOf(grant)
      await ensurePolicy(
        { policies: () => api.policies(signal), createPolicy: (policy) => api.createPolicy(policy, signal) },
        { egress: gateway.port, ingress: WORKER_PORT },
        { app: options.app, mayCreate: options.networkPolicy === 'create' },
      )
      signal?.throwIfAborted()
      // What the platform keeps of the order can be read by whoever may read its machines. So this one is good until the worker has answered.
      const firstBearer = randomBytes(32).toString('base64url')
      const start: MachineStart = {
        id,
        firstBearer,
        signal,
        deadlineMs: options.startTimeoutMs,
        connectTo: (address) => workerLink(() => address, WORKER_PORT),
        request: machineRequest(options, { ...limits, id, labels: request.labels, firstBearer, gateway, timeoutMs }),
      }
      const made: { id?: string } = {}
      undo('machine', () => removeMachine(api, id, made.id))
      const machine = await makeMachine(api, start)
      made.id = machine.id
      await untilWorkerAnswers(api, machine, start)
      const present = (await api.get(machine.id, signal)) ?? machine
      const first = createWorkerClient({
        connect: workerLink(() => privateAddressOf(present), WORKER_PORT),
        token: firstBearer,
      })
      await first.configure({ token: request.workerToken, env: { ...CHILD_ENVIRONMENT, ...request.env } })
      return started(present, timeoutMs)
    },

    list: async (): Promise<readonly SandboxInfo[]> =>
      (await api.list(ANY_SANDBOX)).filter(({ state }) => state !== 'destroying').flatMap(infoOf),

    attach: async (id): Promise<StartedSandbox | undefined> => {
      if (!isSandboxId(id)) return undefined
      const machine = await findMachine(api, id)
      if (machine === undefined) return undefined
      // One that has ended is not reached any more, but is still to be taken away.
      if (hasEnded(machine)) await api.destroy(machine.id)
      return hasEnded(machine) ? undefined : started(machine)
    },

    close: () => {
      watch.close()
      api.close()
      return Promise.resolve()
    },
  }
}

/** @throws PlatformError `network_unsafe` for a gateway that machines can't be held to, or to which a token would go in the clear */
function gatewayOf(
  grant: EgressGrant | undefined,
): InsideAddress & { readonly url: string; readonly ca: string | undefined } {
  // prettier-ignore
  // Said earlier to whoever made the provider.
  if (grant === undefined) throw new TypeError('sandboxes on Fly reach a gateway over the network alone')
  const { gateway, ca } = grant
  const host = gateway.hostname.replace(/^\[|\]$/g, '')
  const isTls = gateway.protocol === 'https:'
  if (!isPrivate6(host) && !(isTls && /^[\d.]+$|:/.test(host)))
    throw new PlatformError('network_unsafe', `machines on Fly are held to the address of the gateway, so \`${gateway.host}\` must be one: its Flycast address, \`http://[fdaa:…]:3128\`, or any literal with \`https:\` (deploy/fly/README.md)`) // prettier-ignore
  return { host, port: Number(gateway.port === '' ? (isTls ? 443 : 80) : gateway.port), url: gateway.href, ca }
}

function infoOf({ id: machine, state, region, created_at: createdAt = '', config }: Machine): SandboxInfo[] {
  const identity = identityIn(config?.metadata ?? {})
  if (identity === undefined || !isSandboxId(identity.id)) return []
  const { id, labels } = identity
  const [createdAtMs, expiresAtMs] = [labels['created-at'] ?? createdAt, labels['expires-at'] ?? ''].map((text) => Date.parse(text)) as [number, number] // prettier-ignore
  return [
    {
      id,
      createdAtMs: Number.isNaN(createdAtMs) ? 0 : createdAtMs,
      ...(!Number.isNaN(expiresAtMs) && { expiresAtMs }),
      labels,
      platform: { machine, state, ...(region !== undefined && { region }) },
    },
  ]
}

const CAPABILITIES: SandboxCapabilities = {
  enforcement: 'platform-port+guest',
  streaming: true,
  spawn: true,
  runtimeEgressChange: true,
  memoryLimit: 'command',
  processLimit: true,
  timeToLive: true,
  attach: true,
  leftOpen: [
    'the platform stops what goes to other ports than the gateway’s; that no other address is reached on that port is a rule inside the machine, and holds as long as its kernel does',
    'the platform’s port rules do not hold for what goes through its own proxy: Flycast addresses of other apps in the same private network are closed by the rules inside alone',
    'whoever has the token of the app, and whoever runs the platform, is root in every machine',
    'other members of the private network reach the port of the worker, which wants its bearer',
    'a fault in Firecracker or in the processor is a way out of the machine, and timing tells something of neighbours',
  ],
}
