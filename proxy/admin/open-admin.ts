/** Puts the admin listener together: who may call, what can be called, and the leases of what callers bound. */
import type { BoundIdentity } from '../bound-identity.ts'
import type { ListenAddress } from '../config/values.ts'
import type { Core } from '../core.ts'
import { faultForLog } from '../fault-for-log.ts'
import type { BindAddress, BoundListener } from '../gateway.ts'
import { readTlsMaterial, watchCertificates } from '../listeners.ts'
import { createAdminVerifier } from '../tokens/admin-token.ts'
import { createAccess } from './access.ts'
import { createAuditReader } from './audit-reader/audit-reader.ts'
import { consoleFiles } from './console-files.ts'
import type { Control } from './control.ts'
import { createLeases } from './leases.ts'
import { adminRoutes } from './routes/index.ts'
import { createAdminServer } from './server.ts'
import { tunnelsHere } from './open-tunnels.ts'
import { tunnelsTogether } from './tunnels-together.ts'
import type { WorkersView } from './workers-view.ts'

/** What the admin listener needs of the gateway around the core. */
export interface OpenAdminOptions {
  readonly bind: (where: BindAddress & { readonly identity: BoundIdentity }) => Promise<BoundListener>
  readonly reload: (() => Promise<void>) | undefined
  readonly version: string
  /** Absent: this process is the whole gateway. */
  readonly workers?: WorkersView | undefined
}

/** The admin listener. */
export interface Admin {
  /** @throws SallyportError `SALLYPORT_LISTEN_FAILED`, `SALLYPORT_KEY_UNREADABLE` */
  readonly listen: (address: ListenAddress) => Promise<ListenAddress>
  /** Idempotent. */
  readonly close: () => Promise<void>
}

/** Listens nowhere before {@link Admin.listen}. */
export function openAdmin(core: Core, { bind, reload, version, workers }: OpenAdminOptions): Admin {
  const { clock, audit, logger, state } = core
  const settings = () => core.config().admin
  const onFault = (error: unknown) => logger.error({ fault: faultForLog(error) }, 'a fault in the control API')
  const leases = createLeases({ bind, clock, audit, onFault })
  const verifier = createAdminVerifier({
    stateKeys: core.ownKeys.document,
    revocations: state.revocations,
    clock,
  })
  const auditReader = createAuditReader(() => core.config().audit.path)
  const here = tunnelsHere({ ...core, others: leases.identities })
  const tunnels = workers === undefined ? here : tunnelsTogether([here, workers.tunnels])
  const notReady = () => [...new Set([...core.notReady(), ...(workers?.notReady() ?? [])])]
  const control: Control = {
    config: core.config,
    clock,
    audit,
    auditService: core.auditService,
    notReady,
    version,
    policies: core.policies,
    state,
    ownKeys: core.ownKeys,
    tunnels,
    workers,
    gate: core.gate,
    sets: core.sets,
    recheck: async () => {
      const [ended, { over }] = await Promise.all([workers?.confirmState() ?? 0, core.recheck()])
      await over
      return ended
    },
    reload,
    leases,
    auditReader,
  }
  let close = async (): Promise<void> => {
    leases.close()
    verifier.close()
    await auditReader.close()
  }
  return {
    listen: async (address) => {
      const { tls } = settings()
      const server = createAdminServer({
        metrics: workers === undefined ? core.metrics : metricsTogether(core.metrics, workers),
        notReady,
        missingWorkers: () => (workers === undefined ? 0 : missing(workers)),
        publicKeys: core.ownKeys.publicJwks,
        open: () => settings().open,
        access: createAccess({
          settings,
          verifier,
          revocations: state.revocations,
          clock,
          isOwnSocket: address.kind === 'unix',
        }),
        routes: adminRoutes(control),
        console: {
          isOn: () => settings().console,
          files: consoleFiles,
          onFault: (error) =>
            logger.warn({ fault: faultForLog(error) }, 'the console can not be served: it is not built'),
        },
        version,
        onFault,
        // A socket of the machine needs none.
        ...(tls && address.kind === 'tcp' && { tls: readTlsMaterial(tls) }),
      })
      const closeRest = close
      const stopWatching =
        tls && address.kind === 'tcp'
          ? watchCertificates(tls, [server], (outcome) => {
              if (outcome.ok) logger.info({}, 'certificates of the admin listener reloaded')
              else onFault(outcome.error)
            })
          : () => undefined
      close = async () => {
        stopWatching()
        await server.close()
        await closeRest()
      }
      return server.listen(address)
    },
    close: () => close(),
  }
}

function metricsTogether(here: Core['metrics'], workers: WorkersView) {
  return { contentType: here.contentType, render: async () => workers.renderMetrics(await here.read()) }
}

function missing(workers: WorkersView): number {
  const { configured, serving } = workers.counts()
  return configured - serving
}
