/** The gateway: its core behind listeners. Listens, binds, reloads, drains and closes. */
import type { EgressPolicy } from '../policies/index.ts'
import { SallyportError } from '../policies/index.ts'
import type { Admin } from './admin/open-admin.ts'
import type { WorkersView } from './admin/workers-view.ts'
import { type BoundIdentity, identityOf } from './bound-identity.ts'
import type { Config } from './config/schema.ts'
import { type Core, type GatewayOptions, openCore } from './core.ts'
import { faultForLog } from './fault-for-log.ts'
import { type ListeningAddress, openListener, ownListeners, watchCertificates } from './listeners.ts'
import type { Listener } from './relay/listen.ts'
import type { Identity } from './tokens/identity.ts'

export type { GatewayLogger, GatewayOptions } from './core.ts'

/** Where a gateway can be reached. */
export interface Listening {
  readonly proxy: readonly ListeningAddress[]
  readonly admin: ListeningAddress | undefined
}

/** A unix socket, or a port on an address (127.0.0.1 by default; 0 picks a free port). */
export type BindAddress = { readonly path: string } | { readonly port: number; readonly host?: string }

/** A listener that stands for one sandbox. */
export interface BoundListener {
  readonly address: ListeningAddress
  /** Names this identity in the audit log and in revocations. */
  readonly tokenId: string
  /**
   * Another policy for this sandbox: the next connection obeys, and open ones that it no longer allows are cut.
   * @throws SallyportError `SALLYPORT_POLICY_INVALID` with every fault; then the old one stays
   */
  readonly setEgress: (policy: EgressPolicy) => void
  /** Stops listening and cuts what is open through it; idempotent. */
  readonly close: () => Promise<void>
}

/** A running gateway. */
export interface Gateway {
  /**
   * Starts to listen where the configuration says.
   * @throws SallyportError `SALLYPORT_LISTEN_FAILED`, `SALLYPORT_KEY_UNREADABLE`
   */
  readonly listen: () => Promise<Listening>
  /**
   * Opens a listener that carries the identity of one sandbox, so that nothing inside needs (or can steal) a token.
   * @throws SallyportError `SALLYPORT_LISTEN_FAILED`, `SALLYPORT_POLICY_INVALID`, `SALLYPORT_GATEWAY_CLOSED`
   */
  readonly bind: (options: BindAddress & { readonly identity: BoundIdentity }) => Promise<BoundListener>
  /**
   * Takes over another configuration: issuers, policy, network, limits and timeouts. Listeners, state and audit stay as they are.
   * Open tunnels that it no longer allows are cut. The audit log has a line for it, also for one that could not be read or used.
   * @throws what `load` throws, or SallyportError when it can't be used; then the old one stays in force
   */
  readonly reload: (load: () => Config | Promise<Config>) => Promise<void>
  /** Refuses what is new, waits for open tunnels up to `timeouts.drainSeconds`, then cuts them. */
  readonly drain: () => Promise<void>
  /** Cuts everything, writes the end of the audit log and closes. Idempotent. */
  readonly close: () => Promise<void>
}

/** A gateway, for the other files of its processes. */
export interface RunningGateway extends Gateway {
  /** To be called when what others listen on has changed; resolves when it is known everywhere. */
  readonly tellListeners: () => Promise<void>
}

/** How often a drain looks whether what was open has ended. */
const DRAIN_LOOK_MS = 100

/**
 * Opens the state folder and the audit log and makes a gateway; it listens nowhere before {@link Gateway.listen}.
 * @throws SallyportError with one line that says what is wrong
 */
export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  if (options.config.workers > 1)
    throw new SallyportError(
      'SALLYPORT_CONFIG_INVALID',
      'workers: processes of their own are started by `sallyport serve` alone; leave it at 1',
    )
  return gatewayAround(await openCore(options), options)
}

/** What a gateway of several processes has beside its core. */
export interface OtherProcesses {
  /** In a worker: the addresses that the gateway listens on in other processes. They are not reachable through this one either. */
  readonly listenersElsewhere?: () => readonly ListeningAddress[]
  /** In the process that supervises: its workers. */
  readonly workers?: Workers
}

/** The workers of a gateway, as the gateway around them needs them. */
export interface Workers extends WorkersView {
  /** Starts them on the ports of clients; resolves when all serve, with the ports. @throws SallyportError of the worker that can't */
  readonly listen: (
    proxy: readonly ListeningAddress[],
    own: (proxy: readonly ListeningAddress[]) => readonly ListeningAddress[],
  ) => Promise<readonly ListeningAddress[]>
  /** Tells them what this process listens on; resolves when none of them lets anybody out to there. */
  readonly tellListeners: (own: readonly ListeningAddress[]) => Promise<void>
  /** Puts a configuration in force that is in force here; who can't take it over is replaced by one that begins with it. */
  readonly takeOver: (config: Config) => Promise<void>
  /** As {@link Gateway.drain}. */
  readonly drain: () => Promise<void>
  /** Ends them in order; idempotent. */
  readonly close: () => Promise<void>
}

/** A gateway around an open core. */
export function gatewayAround(core: Core, options: GatewayOptions, others: OtherProcesses = {}): RunningGateway {
  const { workers, listenersElsewhere } = others
  const listeners = new Map<Listener, ListeningAddress>()
  let admin: Admin | undefined
  let clientPorts: readonly ListeningAddress[] = []
  let adminAddress: ListeningAddress | undefined
  let stopWatchingCertificates = () => {}
  let closing: Promise<void> | undefined

  const allListeners = () => [
    ...listeners.values(),
    ...clientPorts,
    ...(adminAddress ? [adminAddress] : []),
    ...(listenersElsewhere?.() ?? []),
  ]
  /** The rules know every listener of the gateway from the moment that it is open. */
  const tellListeners = async () => {
    core.setOwnListeners(ownListeners(allListeners()))
    await workers?.tellListeners(allListeners())
  }

  const open = async (address: ListeningAddress, bound?: Identity) => {
    if (closing) throw isClosed()
    const opened = await openListener(
      address,
      {
        onSide: core.serve,
        onFault: (fault) => core.logger.warn(fault, 'a connection could not be accepted'),
        door: core.door,
        ...(bound && { bound }),
      },
      bound ? {} : { tls: core.config().listen.tls, isShared: listenersElsewhere !== undefined },
    )
    listeners.set(opened.listener, opened.address)
    await tellListeners()
    return opened
  }

  const bind = async (where: ListeningAddress, bound: BoundIdentity): Promise<BoundListener> => {
    const identity = identityOf(bound, core.clock.wallMs())
    let forget = core.policies.define(identity.tokenId, bound.egress ?? { kind: 'deny-all' })
    const { listener, address } = await open(where, identity).catch((error: unknown) => {
      forget()
      throw error
    })
    return {
      address,
      tokenId: identity.tokenId,
      setEgress: (policy) => {
        forget = core.policies.define(identity.tokenId, policy)
      },
      close: async () => {
        listeners.delete(listener)
        await Promise.all([listener.close(), core.revokeBound(identity)])
        forget()
        if (!closing) await tellListeners()
      },
    }
  }

  const close = async () => {
    stopWatchingCertificates()
    await Promise.all([workers?.close(), ...[...listeners.keys()].map((listener) => listener.close())])
    await admin?.close()
    await core.close()
  }

  return {
    listen: async () => {
      const { proxy, bound, admin: adminListen, tls } = core.config().listen
      if (adminListen) {
        // Its framework is most of what a gateway loads, and a gateway for the sandboxes of one process has no such listener.
        const { openAdmin } = await import('./admin/open-admin.ts')
        if (closing) throw isClosed()
        admin = openAdmin(core, {
          bind: ({ identity, ...where }) => bind(bindAddress(where), identity),
          reload: options.reload,
          version: options.version ?? 'unknown',
          workers,
        })
        adminAddress = await admin.listen(adminListen)
        await tellListeners()
      }
      if (workers === undefined) for (const address of proxy) await open(address)
      if (tls && workers === undefined) {
        stopWatchingCertificates = watchCertificates(tls, [...listeners.keys()], (outcome) => {
          if (outcome.ok) core.logger.info({}, 'certificates reloaded')
          else
            core.logger.error(
              { fault: faultForLog(outcome.error) },
              'new certificates can not be used; the old ones stay',
            )
        })
      }
      for (const { address, ...identity } of bound) await bind(address, identity)
      if (workers !== undefined) {
        const listening = await workers.listen(proxy, (ports) => [...allListeners(), ...ports])
        clientPorts = listening
        await tellListeners()
      }
      return { proxy: [...clientPorts, ...listeners.values()], admin: adminAddress }
    },

    bind: ({ identity, ...where }) => bind(bindAddress(where), identity),

    reload: async (load) => {
      try {
        const config = await load()
        await core.takeOver(config)
        await workers?.takeOver(config)
      } catch (error) {
        await core.audit.write({ kind: 'admin', action: 'reload_failed', detail: faultForLog(error) })
        throw error
      }
    },

    drain: async () => {
      core.refuseNew()
      void core.audit.write({ kind: 'admin', action: 'drain' })
      const workersDrained = workers?.drain()
      const deadlineMs = core.clock.monotonicMs() + core.config().timeouts.drainSeconds * 1000
      while (core.open() > 0 && core.clock.monotonicMs() < deadlineMs)
        await new Promise((resolve) => setTimeout(resolve, DRAIN_LOOK_MS))
      await core.cutAll()
      await workersDrained
    },
    tellListeners,

    close: () => (closing ??= close()),
  }
}

function isClosed(): SallyportError {
  return new SallyportError('SALLYPORT_GATEWAY_CLOSED', 'the gateway is closed')
}

function bindAddress(where: BindAddress): ListeningAddress {
  if ('path' in where) return { kind: 'unix', path: where.path }
  return { kind: 'tcp', host: where.host ?? '127.0.0.1', port: where.port }
}
