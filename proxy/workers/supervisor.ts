/** The workers of a gateway: starts them, replaces those that end, brings what each knows to all, and asks all of them as one. */
import { setTimeout as wait } from 'node:timers/promises'
import { type ErrorCode, SallyportError } from '../../policies/error.ts'
import type { WorkerCounts } from '../admin/workers-view.ts'
import { sinksByName } from '../audit/sinks/sinks-by-name.ts'
import type { Config } from '../config/schema.ts'
import type { Core } from '../core.ts'
import { faultForLog } from '../fault-for-log.ts'
import type { Workers } from '../gateway.ts'
import type { ListeningAddress } from '../listeners.ts'
import { canShareTcp, probeTcp } from '../relay/listen.ts'
import { askedTunnels } from './asked-tunnels.ts'
import { type Ask, BEAT_MS, type WorkerStart } from './protocol.ts'
import { RESTART_RULES, Restarts, type RestartRules } from './restarts.ts'
import type { SharedUsage } from './shared-usage.ts'
import { SummedMetrics } from './summed-metrics.ts'
import { WORKER_PROGRAM, WorkerChild } from './worker-child.ts'

/** What {@link createSupervisor} needs. */
export interface SupervisorOptions {
  readonly usage: SharedUsage
  readonly version: string
  readonly machineSets: WorkerStart['machineSets']
  /** Told once, when a worker can't be replaced any more. */
  readonly onFailed: (error: SallyportError) => void
  readonly restart?: RestartRules | undefined
  /** Instead of the program of a worker: for tests. */
  readonly program?: URL | undefined
}

/** For a worker to confirm what must hold in all of them; then it is ended. */
const CONFIRM_MS = 3_000
const TAKE_OVER_MS = 10_000
const DATA_MS = 5_000
/** Without a word for so long, a worker hangs. */
const SILENT_MS = 10_000
/** For a worker to begin. */
const START_MS = 60_000
/** For a worker to write its last lines. */
const CLOSE_MS = 12_000
/** What a worker counted since it was asked last is lost with it. */
const METRICS_MS = 5_000

/** Starts nothing before {@link Workers.listen}. */
export function createSupervisor(core: Core, options: SupervisorOptions): Workers {
  const { usage, version, machineSets, onFailed } = options
  const { audit, logger } = core
  const configured = core.config().workers
  const children = new Map<number, WorkerChild>()
  const metrics = new SummedMetrics<WorkerChild>()
  const timers: NodeJS.Timeout[] = []
  let config: Config = core.config()
  let proxy: readonly ListeningAddress[] = []
  let own: readonly ListeningAddress[] = []
  let replaced = 0
  let isEnding = false
  let closing: Promise<void> | undefined
  let lastLookMs = performance.now()

  /** Asked again after a wait. */
  const isOver = () => isEnding
  const all = () => [...children.values()]
  /** Those that may have a connection. */
  const open = () => all().filter(({ state }) => state === 'open' || state === 'serving')

  /** What must hold in all workers: those that do not confirm it are ended, so that it holds. How many they were. */
  async function confirm(ask: Ask, withinMs: number): Promise<number> {
    const confirmed = await Promise.all(open().map((child) => confirmOne(child, ask, withinMs)))
    return confirmed.filter((one) => !one).length
  }

  async function confirmOne(child: WorkerChild, ask: Ask, withinMs: number): Promise<boolean> {
    try {
      await child.ask(ask, withinMs)
      return true
    } catch {
      child.kill(`it did not confirm \`${ask.what}\``)
      await Promise.race([child.ended, wait(CONFIRM_MS, undefined, { ref: false })])
      return false
    }
  }

  function start(number: number): WorkerChild {
    const begin: WorkerStart = { config, number, version, machineSets, proxy, own }
    const child = new WorkerChild(begin, options.program ?? WORKER_PROGRAM, {
      onOpen: () => void letServe(child),
      onServing: () => undefined,
      onUsage: (changes) => usage.take(child, changes),
    })
    children.set(number, child)
    usage.join(child)
    return child
  }

  /** What changed while it began is told before it accepts anybody. */
  async function letServe(child: WorkerChild): Promise<void> {
    const isCurrent =
      (await confirmOne(child, { what: 'look' }, CONFIRM_MS)) &&
      (await confirmOne(child, { what: 'listeners', own }, CONFIRM_MS)) &&
      (child.start.config === config || (await confirmOne(child, { what: 'takeOver', config }, TAKE_OVER_MS)))
    if (isCurrent) child.send({ kind: 'serve' })
  }

  /** One place: a worker, and after its end another. `first` has been started. */
  async function keepPlace(first: WorkerChild): Promise<void> {
    const restarts = new Restarts(options.restart ?? RESTART_RULES)
    for (let child = first; ; child = start(child.number)) {
      const end = await child.ended
      children.delete(child.number)
      usage.leave(child)
      metrics.leave(child)
      if (isOver()) return
      const servedMs = child.servingSinceMs === undefined ? 0 : performance.now() - child.servingSinceMs
      const why = end.failure === undefined ? end.how : `${end.how}: ${end.failure.message}`
      const detail = `worker ${child.number} (process ${child.pid ?? 'unknown'}) ended: ${why}`
      logger.error({ worker: child.number, pid: child.pid, why }, 'a worker ended')
      void audit.write({ kind: 'admin', action: 'worker_ended', detail })
      const waitMs = restarts.afterEnd(servedMs)
      if (waitMs === undefined) {
        giveUp(child.number, why)
        return
      }
      if (waitMs > 0) await wait(waitMs, undefined, { ref: false })
      if (isOver()) return
      replaced++
    }
  }

  function giveUp(number: number, why: string): void {
    isEnding = true
    const message = `worker ${number} ended again and again, the last time with ${why}; the gateway can not go on. The \`worker_ended\` lines of the audit log have every reason; with \`workers: 1\` it runs without`
    onFailed(new SallyportError('SALLYPORT_WORKERS_FAILED', message))
  }

  /** Resolves when it serves. @throws SallyportError of the worker */
  async function serving(child: WorkerChild): Promise<void> {
    const deadlineMs = performance.now() + START_MS
    const ended = child.ended.then((end) => {
      const code = (end.failure?.code ?? 'SALLYPORT_WORKERS_FAILED') as ErrorCode
      throw new SallyportError(code, end.failure?.message ?? `worker ${child.number} could not begin: ${end.how}`)
    })
    ended.catch(() => undefined)
    while (child.state !== 'serving') {
      if (performance.now() > deadlineMs) child.kill('it did not begin in time')
      await Promise.race([ended, wait(5, undefined, { ref: false })])
    }
  }

  function watch(): void {
    const nowMs = performance.now()
    // After a pause of this process itself, nobody could be heard.
    const wasAway = nowMs - lastLookMs > SILENT_MS / 2
    lastLookMs = nowMs
    for (const child of all()) {
      child.send({ kind: 'beat' })
      if (wasAway) child.heardMs = nowMs
      else if (child.state === 'serving' && nowMs - child.heardMs > SILENT_MS) child.kill('it hung')
      else if (child.state !== 'serving' && nowMs - child.heardMs > START_MS) child.kill('it did not begin in time')
    }
  }

  async function readMetrics(): Promise<void> {
    const asked = open().map(async (child) => {
      const read = await child.askData({ what: 'metrics' }, DATA_MS).catch(() => undefined)
      // One that is gone counts with what was known when it went.
      if (read !== undefined && children.get(child.number) === child) metrics.note(child, read)
    })
    await Promise.all(asked)
  }

  async function close(): Promise<void> {
    isEnding = true
    for (const timer of timers) clearInterval(timer)
    await Promise.all(
      all().map(async (child) => {
        child.ask({ what: 'close' }, CLOSE_MS).catch(() => undefined)
        await Promise.race([child.ended, wait(CLOSE_MS, undefined, { ref: false })])
        child.kill('it did not close in time')
        await child.ended
      }),
    )
  }

  const counts = (): WorkerCounts => {
    const serves = all().filter(({ state }) => state === 'serving').length
    return { configured, serving: serves, replaced }
  }
  return {
    counts,
    notReady: () => {
      const missing = counts().serving === 0 ? ['workers_missing'] : []
      return [...missing, ...all().flatMap(({ notReady }) => notReady)]
    },
    tunnels: askedTunnels(open, DATA_MS),
    audit: async () => {
      const asked = open().map((child) => child.askData({ what: 'audit' }, DATA_MS).catch(() => undefined))
      const found = (await Promise.all(asked)).filter((one) => one !== undefined)
      return {
        isWritable: found.every(({ isWritable }) => isWritable),
        sinks: sinksByName(found.flatMap(({ sinks }) => sinks)),
      }
    },
    renderMetrics: async (here) => {
      await readMetrics()
      return metrics.render(here)
    },
    confirmState: () => confirm({ what: 'look' }, CONFIRM_MS),
    listen: async (addresses, ownWith) => {
      proxy = await sharedPorts(addresses)
      own = ownWith(proxy)
      timers.push(setInterval(watch, BEAT_MS).unref(), setInterval(() => void readMetrics(), METRICS_MS).unref())
      const first = Array.from({ length: configured }, (_none, index) => start(index + 1))
      await Promise.all(first.map(serving))
      // Starting a process may fail in ways that are no end of a worker.
      for (const child of first) keepPlace(child).catch((error: unknown) => giveUp(child.number, faultForLog(error)))
      return proxy
    },
    tellListeners: async (addresses) => {
      own = addresses
      await confirm({ what: 'listeners', own }, CONFIRM_MS)
    },
    takeOver: async (next) => {
      config = next
      await confirm({ what: 'takeOver', config }, TAKE_OVER_MS)
    },
    drain: async () => {
      isEnding = true
      const withinMs = config.timeouts.drainSeconds * 1000 + CONFIRM_MS
      await Promise.all(open().map((child) => child.ask({ what: 'drain' }, withinMs).catch(() => undefined)))
    },
    close: () => (closing ??= close()),
  }
}

/** @throws SallyportError `SALLYPORT_LISTEN_FAILED` */
async function sharedPorts(addresses: readonly ListeningAddress[]): Promise<readonly ListeningAddress[]> {
  if (!canShareTcp())
    throw new SallyportError(
      'SALLYPORT_LISTEN_FAILED',
      'workers: on this system several processes can not share a port; set `workers: 1`',
    )
  const ports: ListeningAddress[] = []
  for (const address of addresses)
    ports.push(address.kind === 'tcp' ? { ...address, port: await probeTcp(address) } : address)
  return ports
}
