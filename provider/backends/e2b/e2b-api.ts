/** E2B's API through its own SDK: machines made, found, kept alive and ended, with patience where asking again does no harm. */
import type { Sandbox as Machine } from 'e2b'
import { setTimeout as delay } from 'node:timers/promises'
import { loadPackage } from '../../adapters/load-package.ts'
import { backOffMs, DEFAULT_PACE } from '../platform/retry-after.ts'
import { PlatformError } from '../platform/platform-error.ts'
import { e2bFault, statusOf } from './e2b-fault.ts'
import type { ResolvedE2bOptions } from './e2b-options.ts'
import type { MachineNetwork } from './gateway-address.ts'

export type { Machine }

/** One machine in a list. */
export interface ListedMachine {
  readonly machineId: string
  readonly metadata: Readonly<Record<string, string>>
  readonly startedAtMs: number
}

/** What is asked of E2B. Every method throws a PlatformError without secrets. */
export interface E2bApi {
  /** Loads the SDK. @throws SallyportError `SALLYPORT_PACKAGE_MISSING` */
  readonly load: () => Promise<void>
  /** Asks who we are, by the cheapest request that needs the key. */
  readonly check: () => Promise<void>
  readonly create: (order: { readonly metadata: Readonly<Record<string, string>>; readonly network: MachineNetwork; readonly timeoutMs: number}) => Promise<Machine> // prettier-ignore
  /** Undefined when it is gone. */
  readonly connect: (machineId: string, timeoutMs: number) => Promise<Machine | undefined>
  /** False when it is gone. */
  readonly extend: (machineId: string, timeoutMs: number) => Promise<boolean>
  /** Puts `network` in the place of all that its firewall was told. False when it is gone. */
  readonly setNetwork: (machineId: string, network: MachineNetwork) => Promise<boolean>
  readonly isThere: (machineId: string) => Promise<boolean>
  /** Ends it; one that is gone is fine. */
  readonly end: (machineId: string) => Promise<void>
  /** Those with all of `metadata`. */
  readonly list: (metadata: Readonly<Record<string, string>>) => Promise<readonly ListedMachine[]>
  readonly fault: (error: unknown, action: string, isUnsafe?: boolean) => Error
}

const REQUEST_TIMEOUT_MS = 30_000
/** For all tries of one request together. */
const TOTAL_MS = 45_000
const MAX_TRIES = 5
const PAGE = 100
/** A team has at most some thousands. */
const MAX_PAGES = 200

/** Opens nothing. */
export function createE2bApi(options: ResolvedE2bOptions): E2bApi {
  const { apiKey, template, domain, apiUrl, sandboxUrl } = options
  // Whatever its variables say: a debugging SDK makes no machines, and ends none.
  const connection = { apiKey, domain, apiUrl, debug: false, requestTimeoutMs: REQUEST_TIMEOUT_MS, ...(sandboxUrl !== undefined && { sandboxUrl }) } // prettier-ignore
  const load = () => loadPackage('e2b', () => import('e2b'))
  const faultOf = (error: unknown, action: string, isUnsafe: boolean, secrets: readonly string[]): Error =>
    e2bFault(error, { action, template, secrets: [apiKey, ...secrets], isUnsafe })
  const fault = (error: unknown, action: string, isUnsafe = false): Error => faultOf(error, action, isUnsafe, [])

  /** Only for what may be done twice. 429 with `Retry-After` is the SDK's own business. */
  const patiently = async <T>(action: string, ask: () => Promise<T>, secrets: readonly string[] = []): Promise<T> => {
    const deadline = Date.now() + TOTAL_MS
    for (let tries = 1; ; tries++) {
      try {
        return await ask()
      } catch (error) {
        const status = statusOf(error)
        const waitMs = backOffMs(tries, DEFAULT_PACE)
        const isPassing = status === undefined || status >= 500 || status === 429
        if (!isPassing || tries === MAX_TRIES || Date.now() + waitMs > deadline) throw faultOf(error, action, false, secrets) // prettier-ignore
        await delay(waitMs)
      }
    }
  }
  const unlessGone = async <T>(ask: () => Promise<T>): Promise<T | undefined> =>
    ask().catch((error: unknown) => {
      if (error instanceof PlatformError && error.fault === 'not_found') return undefined
      throw error
    })

  return {
    fault,
    load: async () => {
      await load()
    },
    check: async () => {
      const { Sandbox } = await load()
      await patiently('ask E2B', () => Sandbox.list({ ...connection, limit: 1 }).nextItems())
    },
    create: async ({ metadata, network, timeoutMs }) => {
      const { Sandbox } = await load()
      try {
        // Not given up in between: who gives up would not learn which machine it is.
        return await Sandbox.create(template, { ...connection, metadata, timeoutMs, network })
      } catch (error) {
        // Nor asked for again: the machine may be there, under its labels.
        throw faultOf(error, 'make a sandbox', true, secretsOf(network))
      }
    },
    connect: async (machineId, timeoutMs) => {
      const { Sandbox } = await load()
      return unlessGone(() => patiently('reach the sandbox', () => Sandbox.connect(machineId, { ...connection, timeoutMs }))) // prettier-ignore
    },
    extend: async (machineId, timeoutMs) => {
      const { Sandbox } = await load()
      const done = await unlessGone(() =>
        patiently('keep the sandbox', async () => {
          await Sandbox.setTimeout(machineId, timeoutMs, connection)
          return true
        }),
      )
      return done === true
    },
    setNetwork: async (machineId, { allowOut, denyOut, egressProxy }) => {
      const { Sandbox } = await load()
      // All of it, since what is left out is cleared; the same again does no harm.
      const network = { allowOut, denyOut, ...(egressProxy !== undefined && { egressProxy }) }
      const set = () => Sandbox.updateNetwork(machineId, network, connection).then(() => true)
      const done = await unlessGone(() => patiently('set the network of the sandbox', set, secretsOf(network)))
      return done === true
    },
    isThere: async (machineId) => {
      const { Sandbox } = await load()
      const info = await unlessGone(() =>
        patiently('look at the sandbox', () => Sandbox.getInfo(machineId, connection)),
      )
      return info?.state === 'running'
    },
    end: async (machineId) => {
      const { Sandbox } = await load()
      await patiently('end the sandbox', () => Sandbox.kill(machineId, connection))
    },
    list: async (metadata) => {
      const { Sandbox } = await load()
      const pages = Sandbox.list({ ...connection, limit: PAGE, query: { metadata: { ...metadata }, state: ['running', 'paused'] } }) // prettier-ignore
      // A page may show what is gone, and one machine may be on two of them.
      const found = new Map<string, ListedMachine>()
      for (let page = 0; pages.hasNext; page++) {
        if (page === MAX_PAGES) throw fault(new Error('the list has no end'), 'list sandboxes')
        for (const { sandboxId, metadata: own, startedAt } of await patiently('list sandboxes', () =>
          pages.nextItems(),
        ))
          found.set(sandboxId, { machineId: sandboxId, metadata: own, startedAtMs: startedAt.getTime() })
      }
      return [...found.values()]
    },
  }
}

function secretsOf({ egressProxy }: Pick<MachineNetwork, 'egressProxy'>): readonly string[] {
  return egressProxy === undefined ? [] : [egressProxy.password]
}
