/**
 * Reads documents of any size that is taken, without keeping connections waiting: small ones here, large ones in a thread of its own. One thread, one document
 * at a time, a bounded queue, bounded time and memory; whatever goes wrong is a fault, and nothing is read in part.
 */
import { Worker } from 'node:worker_threads'
import { DOCUMENT_JOB, type FromReader, type ToReader } from './document-thread.ts'
import { DocumentFault, type DocumentKind, parseDocument } from './parse-document.ts'
import { Assembly } from './pieces.ts'

/** Below it reading takes a millisecond or two, as JSON; YAML takes a hundred times as long. */
const SMALL_BYTES = { json: 64 * 1024, yaml: 1024 }
/** Of those that wait together, so that answers of many tenants at once are all read. */
const MOST_WAITING_BYTES = 64 * 1024 * 1024
/** A megabyte of YAML takes a second of processor time; a machine may be ten times as busy. */
const LONGEST_MS = 30_000
const MAX_HEAP_MB = 384
/** How long the thread waits for another document. */
const IDLE_MS = 30_000

/** Whether a document is read in the thread. */
export function isLarge(kind: DocumentKind, bytes: Uint8Array): boolean {
  return bytes.byteLength > SMALL_BYTES[kind]
}

/** Reads documents, the large ones in a thread. */
export class LargeDocuments {
  readonly #longestMs: number
  readonly #program: URL
  #thread: Worker | undefined
  #idle: NodeJS.Timeout | undefined
  #waitingBytes = 0
  readonly #mostWaitingBytes: number
  #last: Promise<unknown> = Promise.resolve()

  /** Starts nothing yet. The options are for tests. */
  constructor({
    longestMs = LONGEST_MS,
    mostWaitingBytes = MOST_WAITING_BYTES,
    program = PROGRAM,
  }: { longestMs?: number; mostWaitingBytes?: number; program?: URL } = {}) {
    this.#longestMs = longestMs
    this.#mostWaitingBytes = mostWaitingBytes
    this.#program = program
  }

  /**
   * The value; `bytes` stay the caller's. `isOwn`: of the operator's files, one at a time, for which there is always room, whoever else asks.
   * @throws DocumentFault
   */
  async read(kind: DocumentKind, bytes: Uint8Array, isOwn = false): Promise<unknown> {
    if (!isLarge(kind, bytes)) return parseDocument(kind, bytes)
    if (!isOwn && this.#waitingBytes + bytes.byteLength > this.#mostWaitingBytes) throw new DocumentFault('busy')
    this.#waitingBytes += bytes.byteLength
    const reading = this.#last.then(() => this.#readApart(kind, bytes))
    this.#last = reading.catch(() => undefined)
    try {
      return await reading
    } finally {
      this.#waitingBytes -= bytes.byteLength
      if (this.#waitingBytes === 0) this.#idle = setTimeout(() => this.#stop(), IDLE_MS).unref()
    }
  }

  #readApart(kind: DocumentKind, bytes: Uint8Array): Promise<unknown> {
    clearTimeout(this.#idle)
    const thread = (this.#thread ??= this.#start())
    thread.ref()
    const send = (message: ToReader): void => thread.postMessage(message)
    const assembly = new Assembly()
    return new Promise((resolve, reject) => {
      const end = (fault?: DocumentFault): void => {
        clearTimeout(timer)
        thread.off('message', onMessage).off('error', onEnd).off('exit', onEnd).unref()
        if (fault === undefined) resolve(assembly.value)
        else reject(fault)
      }
      // What takes so long goes on otherwise, and the next one would wait for it.
      const timer = setTimeout(() => {
        this.#stop()
        end(new DocumentFault('too_long'))
      }, this.#longestMs)
      const onEnd = (): void => {
        if (this.#thread === thread) this.#thread = undefined
        end(new DocumentFault('ended'))
      }
      const onMessage = (answer: FromReader): void => {
        if ('fault' in answer) {
          end(new DocumentFault(answer.fault))
          return
        }
        assembly.add(answer.pieces)
        if (answer.isLast) end()
        else send('more')
      }
      thread.on('message', onMessage).once('error', onEnd).once('exit', onEnd)
      send({ kind, bytes })
    })
  }

  #start(): Worker {
    const thread = new Worker(this.#program, {
      workerData: DOCUMENT_JOB,
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    })
    // One that dies while nothing is read: whoever comes next starts another.
    const forget = (): void => {
      if (this.#thread === thread) this.#thread = undefined
    }
    thread.on('error', forget).once('exit', forget)
    return thread
  }

  #stop(): void {
    const thread = this.#thread
    this.#thread = undefined
    void thread?.terminate()
  }
}

const PROGRAM = new URL(`./document-thread${import.meta.url.endsWith('.ts') ? '.ts' : '.js'}`, import.meta.url)

/** Those of this process. */
export const largeDocuments = new LargeDocuments()
