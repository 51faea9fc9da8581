/** One worker: a gateway without an admin listener, on ports that it shares with the other workers. It does what the supervising process says, and ends with it. */
import type { Duplex } from 'node:stream'
import { pino } from 'pino'
import { SallyportError } from '../../policies/error.ts'
import type { Config } from '../config/schema.ts'
import { type Core, openCore } from '../core.ts'
import { faultForLog } from '../fault-for-log.ts'
import { gatewayAround, type RunningGateway } from '../gateway.ts'
import type { ListeningAddress } from '../listeners.ts'
import type { UsageChange } from '../tunnels/usage.ts'
import { answer } from './answer.ts'
import { openLink } from './link.ts'
import {
  type Ask,
  BEAT_MS,
  CUT_OFF_MS,
  type FromWorker,
  LONGEST_FROM_WORKER,
  LONGEST_TO_WORKER,
  packUsage,
  type ToWorker,
  unpackUsage,
  type WorkerStart,
} from './protocol.ts'
import { tellUsage, type UsageTeller } from './tell-usage.ts'

/** For what is told to be read, before a worker tells more. */
const SLOW_BYTES = 1024 * 1024

/** For the last lines of the audit log; after that the process ends as it is. */
const LONGEST_END_MS = 15_000

interface Running {
  readonly core: Core
  readonly gateway: RunningGateway
}

/** Runs until the supervising process says so or is gone; resolves then, with nothing left open. */
export function runWorker(stream: Duplex): Promise<void> {
  return new Promise((resolve) => {
    let heardMs = performance.now()
    let own: readonly ListeningAddress[] = []
    let ports: readonly ListeningAddress[] = []
    let opening: Promise<Running> | undefined
    let running: Running | undefined
    let beat: NodeJS.Timeout | undefined
    let ending: Promise<void> | undefined

    const link = openLink<FromWorker>(stream, {
      onMessage: (message) => {
        heardMs = performance.now()
        take(message as ToWorker)
      },
      // Whatever the reason: nobody tells this worker any more what was revoked.
      onEnd: () => void end(),
      longest: LONGEST_TO_WORKER,
      longestSent: LONGEST_FROM_WORKER,
    })
    let teller: UsageTeller | undefined

    function take(message: ToWorker): void {
      switch (message.kind) {
        case 'start':
          own = message.start.own
          ports = message.start.proxy
          opening = begin(message.start)
          opening.catch(giveUp)
          return
        case 'serve':
          whenOpen(({ gateway }) => void serve(gateway).catch(giveUp))
          return
        case 'usage':
          whenOpen(({ core }) => core.limits.addElsewhere(unpackUsage(message.changes)))
          return
        case 'ask':
          whenOpen((opened) => void reply(message.id, message.ask, opened))
          return
        case 'beat':
      }
    }

    /** In the order of the messages. */
    function whenOpen(act: (opened: Running) => void): void {
      if (running !== undefined) act(running)
      else void opening?.then(act, () => undefined)
    }

    /** What is not for workers is open elsewhere; the ports are those that the gateway has. */
    function ofWorker(config: Config): Config {
      return { ...config, listen: { ...config.listen, proxy: [...ports], admin: undefined, bound: [] } }
    }

    async function begin({ config, number, version, machineSets }: WorkerStart): Promise<Running> {
      const options = {
        config: ofWorker(config),
        logger: pino({ level: config.log.level, base: { pid: process.pid, worker: number } }, pino.destination(2)),
        machineSets: { sets: machineSets, notes: [] },
        version,
      }
      const isCutOff = (): boolean => performance.now() - heardMs > CUT_OFF_MS
      const { workers } = config
      teller = tellUsage(workers + 1, tell, () => link.waiting() > SLOW_BYTES)
      const core = await openCore(options, { worker: number, workers, untold: teller.untold, isCutOff })
      running = { core, gateway: gatewayAround(core, options, { listenersElsewhere: () => own }) }
      await running.gateway.tellListeners()
      link.send({ kind: 'open' })
      return running
    }

    function tell(changes: readonly UsageChange[]): void {
      for (const packed of packUsage(changes)) link.send({ kind: 'usage', changes: packed })
    }

    async function serve(gateway: RunningGateway): Promise<void> {
      await gateway.listen()
      link.send({ kind: 'serving' })
      beat = setInterval(sendBeat, BEAT_MS).unref()
      sendBeat()
    }

    function sendBeat(): void {
      if (running === undefined) return
      const { registry, notReady } = running.core
      link.send({ kind: 'beat', tunnels: registry.size, notReady: notReady() })
    }

    async function reply(id: number, ask: Ask, { core, gateway }: Running): Promise<void> {
      if (ask.what === 'close') return end()
      try {
        if (ask.what === 'listeners') own = ask.own
        const here = ask.what === 'takeOver' ? { ...ask, config: ofWorker(ask.config) } : ask
        const value = await (here.what === 'listeners' ? gateway.tellListeners() : answer(here, core, gateway))
        link.send({ kind: 'answer', id, value: value ?? null })
      } catch (error) {
        core.logger.error({ fault: faultForLog(error), what: ask.what }, 'a worker could not do what it was asked')
        link.send({ kind: 'fault', id })
      }
    }

    function giveUp(error: unknown): void {
      const known = error instanceof SallyportError ? error : undefined
      const message = known?.message ?? `a fault while starting: ${faultForLog(error)}`
      link.send({ kind: 'failed', code: known?.code ?? 'SALLYPORT_WORKERS_FAILED', message })
      void end()
    }

    function end(): Promise<void> {
      return (ending ??= (async () => {
        setTimeout(resolve, LONGEST_END_MS).unref()
        clearInterval(beat)
        await opening?.catch(() => undefined)
        await running?.gateway.close()
        teller?.close()
        // What was sent last has to leave.
        stream.end()
        stream.once('close', resolve)
        setTimeout(resolve, 500).unref()
        if (stream.destroyed) resolve()
      })())
    }
  })
}
