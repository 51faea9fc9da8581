/**
 * Reads the audit log for the control API in a thread of its own, and keeps its index up to date in another: what looks through a million lines is no work for the
 * loop that serves connections. The threads start with the first question, and end when nobody has asked for a while.
 */
import { Worker } from 'node:worker_threads'
import { SallyportError } from '../../../policies/error.ts'
import type { AuditFilters } from '../../audit/match.ts'
import type { AuditSummary, SummaryOptions } from '../audit-summary.ts'
import type { FromReader, LinesFound, ReaderJob, ToReader } from './job.ts'

/** The log, for those who ask. */
export interface AuditReader {
  /**
   * Lines in order of time, `limit` of them at most, and no more than a megabyte of them.
   * @throws SallyportError `SALLYPORT_AUDIT_UNREADABLE`, also for a cursor that is none; the reason of `signal` when it aborts
   */
  readonly lines: (
    asked: { readonly filters: AuditFilters; readonly limit: number; readonly cursor?: string | undefined },
    signal: AbortSignal,
  ) => Promise<LinesFound>
  /** Counts lines. @throws the same */
  readonly summary: (filters: AuditFilters, options: SummaryOptions, signal: AbortSignal) => Promise<AuditSummary>
  /** Ends the thread; idempotent. */
  readonly close: () => Promise<void>
}

/** How long the thread waits for another question. */
const IDLE_MS = 600_000
/** More than any page of lines or any ranking takes. */
const MAX_HEAP_MB = 512

interface Pending {
  readonly thread: Worker
  readonly resolve: (answer: FromReader) => void
  readonly reject: (error: unknown) => void
}

/** Starts nothing yet. `idleMs` is for tests. */
export function createAuditReader(folder: () => string, idleMs = IDLE_MS): AuditReader {
  const pending = new Map<number, Pending>()
  let worker: Worker | undefined
  let indexer: Worker | undefined
  let idle: NodeJS.Timeout | undefined
  let count = 0
  let isClosed = false

  return {
    lines: async ({ filters, limit, cursor }, signal) => {
      const answer = await ask({ kind: 'lines', filters, limit, cursor }, signal)
      if ('found' in answer) return answer.found
      throw faultOf(answer)
    },
    summary: async (filters, options, signal) => {
      const answer = await ask({ kind: 'summary', filters, options }, signal)
      if ('counted' in answer) return answer.counted
      throw faultOf(answer)
    },
    close: async () => {
      isClosed = true
      await stop()
    },
  }

  async function ask(job: ReaderJob, signal: AbortSignal): Promise<FromReader> {
    signal.throwIfAborted()
    if (isClosed) throw new SallyportError('SALLYPORT_GATEWAY_CLOSED', 'the gateway is closed')
    clearTimeout(idle)
    const thread = (worker ??= start())
    thread.ref()
    const id = count++
    const send = (message: ToReader): void => thread.postMessage(message)
    const cancel = (): void => {
      send({ id, cancel: true })
      pending.get(id)?.reject(signal.reason)
    }
    signal.addEventListener('abort', cancel, { once: true })
    try {
      return await new Promise<FromReader>((resolve, reject) => {
        pending.set(id, { thread, resolve, reject })
        send({ id, job })
      })
    } finally {
      signal.removeEventListener('abort', cancel)
      pending.delete(id)
      if (pending.size === 0) {
        // A thread that waits for a question holds no process up.
        thread.unref()
        idle = setTimeout(() => void stop(), idleMs).unref()
      }
    }
  }

  function start(): Worker {
    const thread = startThread('reader-thread', { job: 'sallyport-audit-reader', folder: folder() })
    thread.on('message', (answer: FromReader) => pending.get(answer.id)?.resolve(answer))
    // Whoever asks next starts another.
    const fail = (): void => {
      if (worker === thread) worker = undefined
      for (const one of pending.values())
        if (one.thread === thread) one.reject(new Error('the thread that reads the audit log ended'))
    }
    thread.once('error', fail)
    thread.once('exit', fail)
    indexer ??= startIndexer()
    return thread
  }

  /** Without it an answer takes longer, and that is all. */
  function startIndexer(): Worker {
    const thread = startThread('index-thread', { job: 'sallyport-audit-indexer', folder: folder() })
    const forget = (): void => {
      if (indexer === thread) indexer = undefined
    }
    thread.once('error', forget)
    thread.once('exit', forget)
    thread.unref()
    return thread
  }

  async function stop(): Promise<void> {
    clearTimeout(idle)
    const [reading, indexing] = [worker, indexer]
    worker = indexer = undefined
    await reading?.terminate()
    await indexing?.terminate()
  }
}

function startThread(name: string, workerData: { readonly job: string; readonly folder: string }): Worker {
  const file = `./${name}${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`
  return new Worker(new URL(file, import.meta.url), {
    workerData,
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
  })
}

function faultOf(answer: FromReader): Error {
  return 'unreadable' in answer
    ? new SallyportError('SALLYPORT_AUDIT_UNREADABLE', answer.unreadable)
    : new Error(`a fault while reading the audit log${'fault' in answer ? `: ${answer.fault}` : ''}`)
}
