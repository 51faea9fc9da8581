/** One worker process, from its start to its end, as the supervising process sees it. */
import { spawn } from 'node:child_process'
import { type Duplex, PassThrough } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { type Link, openLink } from './link.ts'
import {
  type AnswerTo,
  answers,
  type Ask,
  type DataAsk,
  type FromWorker,
  LONGEST_FROM_WORKER,
  LONGEST_TO_WORKER,
  readFromWorker,
  type ToWorker,
  type WireUsage,
  type WorkerStart,
} from './protocol.ts'

/** How a worker ended. */
export interface WorkerEnd {
  /** Such as `exit code 1`, `SIGKILL`, or what it was killed for. */
  readonly how: string
  /** What it said before, if it could not begin. */
  readonly failure: { readonly code: string; readonly message: string } | undefined
}

/** What the supervisor is told of one. */
export interface WorkerEvents {
  readonly onOpen: () => void
  readonly onServing: () => void
  /** What it counted against limits. Throwing ends it. */
  readonly onUsage: (changes: WireUsage) => void
}

interface Pending {
  readonly resolve: (value: unknown) => void
  readonly reject: (error: Error) => void
}

/** The program of a worker. */
export const WORKER_PROGRAM = new URL(
  `./worker-process${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`,
  import.meta.url,
)

/** A started worker. */
export class WorkerChild {
  /** `open`: it can be asked. */
  state: 'starting' | 'open' | 'serving' | 'ended' = 'starting'
  /** As it said last. */
  tunnels = 0
  notReady: readonly string[] = []
  /** When it was last heard, and when it began to serve, on the monotonic clock. */
  heardMs = performance.now()
  servingSinceMs: number | undefined
  readonly pid: number | undefined
  readonly number: number
  /** What it began with. */
  readonly start: WorkerStart
  /** Everything that it sent was read by then. */
  readonly ended: Promise<WorkerEnd>
  readonly #kill: () => void
  readonly #link: Link<ToWorker>
  readonly #events: WorkerEvents
  readonly #pending = new Map<number, Pending>()
  #count = 0
  #why: string | undefined
  #failure: WorkerEnd['failure']

  constructor(start: WorkerStart, program: URL, events: WorkerEvents) {
    this.#events = events
    this.start = start
    this.number = start.number
    const child = spawn(process.execPath, [...ownArguments(), fileURLToPath(program)], {
      stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
    })
    this.pid = child.pid
    this.#kill = () => void child.kill('SIGKILL')
    this.ended = new Promise((resolve) => {
      const end = (how: string): void => {
        this.state = 'ended'
        for (const { reject } of this.#pending.values()) reject(new Error('the worker ended'))
        this.#pending.clear()
        resolve({ how: this.#why ?? how, failure: this.#failure })
      }
      child.once('error', (error: NodeJS.ErrnoException) => end(`could not be started (${error.code ?? 'unknown'})`))
      child.once('close', (code, signal) => end(signal ?? `exit code ${code ?? 'unknown'}`))
    })
    // There is none where there were no descriptors left to start it with.
    const stdio = child.stdio as readonly unknown[] | undefined
    this.#link = openLink<ToWorker>((stdio?.[3] as Duplex | undefined) ?? new PassThrough(), {
      onMessage: (message) => this.#take(readFromWorker(message)),
      onEnd: (fault) => fault !== undefined && this.kill(fault),
      longest: LONGEST_FROM_WORKER,
      longestSent: LONGEST_TO_WORKER,
    })
    this.send({ kind: 'start', start })
  }

  get hasEnded(): boolean {
    return this.state === 'ended'
  }

  /** To be told more only when it has read what it was told. */
  get isSlow(): boolean {
    return this.#link.waiting() > 1024 * 1024
  }

  /** Queues a message; one that has ended gets none. */
  send(message: ToWorker): void {
    if (this.state !== 'ended') this.#link.send(message)
  }

  /** @throws when it does not answer in time, answers that it can't, or ends */
  ask(ask: Ask, withinMs: number): Promise<unknown> {
    if (this.state === 'ended') return Promise.reject(new Error('the worker ended'))
    const id = this.#count++
    return new Promise<unknown>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#pending.delete(id)
        reject(new Error('no answer in time'))
      }, withinMs).unref()
      const settled = <T>(settle: (value: T) => void) => {
        return (value: T) => {
          clearTimeout(timer)
          this.#pending.delete(id)
          settle(value)
        }
      }
      this.#pending.set(id, { resolve: settled(resolve), reject: settled(reject) })
      this.send({ kind: 'ask', id, ask })
    })
  }

  /** Asks for data. @throws also when the answer is none */
  async askData<A extends DataAsk>(ask: A, withinMs: number): Promise<AnswerTo<A>> {
    const value = await this.ask(ask, withinMs)
    return answers[ask.what].parse(value) as AnswerTo<A>
  }

  /** For what it does not do, or should not have done. */
  kill(why: string): void {
    this.#why ??= why
    this.#kill()
  }

  #take(message: FromWorker): void {
    this.heardMs = performance.now()
    switch (message.kind) {
      case 'open':
        if (this.state !== 'starting') throw new Error('out of turn')
        this.state = 'open'
        this.#events.onOpen()
        return
      case 'serving':
        if (this.state !== 'open') throw new Error('out of turn')
        this.state = 'serving'
        this.servingSinceMs = this.heardMs
        this.#events.onServing()
        return
      case 'failed':
        this.#failure ??= { code: message.code, message: message.message }
        return
      case 'usage':
        this.#events.onUsage(message.changes)
        return
      case 'beat':
        this.tunnels = message.tunnels
        this.notReady = message.notReady
        return
      case 'answer':
        this.#pending.get(message.id)?.resolve(message.value)
        return
      case 'fault':
        this.#pending.get(message.id)?.reject(new Error('the worker could not do it'))
    }
  }
}

/** Of this process, for Node; not those that open a port of their own. */
function ownArguments(): readonly string[] {
  return process.execArgv.filter((argument) => !argument.startsWith('--inspect'))
}
