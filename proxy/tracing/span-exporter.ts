/**
 * Sends spans to a collector over HTTP, in JSON. What waits is bounded: a collector that is slow or down costs spans, which are counted, never memory and never
 * a connection's time.
 * @see https://opentelemetry.io/docs/specs/otlp/#otlphttp
 */
import { setTimeout as wait } from 'node:timers/promises'
import { z } from 'zod'
import type { AuditLogger } from '../audit/log.ts'
import { post } from '../audit/sinks/post.ts'
import { readSecret } from '../audit/sinks/secret-file.ts'
import { DeliveryFault } from '../audit/sinks/sink.ts'

/** What {@link SpanExporter} needs; all limits are finite. */
export interface SpanExporterOptions {
  /** The whole URL, with `/v1/traces`. */
  readonly url: string
  /** File whose line is sent as the `authorization` header; read at each attempt. */
  readonly authorizationFile?: string | undefined
  /** For one exchange. */
  readonly timeoutMs: number
  readonly instance: string
  readonly version: string
  readonly logger?: AuditLogger | undefined
  /** How long spans wait for company. Default 1,000 ms. */
  readonly gatherMs?: number | undefined
  /** First pause after a failure; each further one doubles it. Default 500 ms. */
  readonly firstPauseMs?: number | undefined
}

/** What became of spans. */
export interface SpanCounts {
  /** Taken by the collector. */
  sent: number
  /** Refused by the collector for good. */
  rejected: number
  /** Given up: there was no room for them, or the collector could not be had. */
  dropped: number
}

/** Spans that wait; as many as OpenTelemetry's own exporters keep. */
const MAX_WAITING = 2_048
/** Most of them are below a kilobyte; no hostile name makes them hold more memory than this. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024
const MAX_BATCH = 512
const MAX_BATCH_BYTES = 512 * 1024
/** Then its spans make way: traces that are minutes old help nobody. */
const MAX_ATTEMPTS = 5
const MAX_PAUSE_MS = 30_000

const answerSchema = z.object({
  partialSuccess: z.object({ rejectedSpans: z.coerce.number().int().min(0).optional() }).optional(),
})

/** Connects nothing before the first span. */
export class SpanExporter {
  readonly counts: SpanCounts = { sent: 0, rejected: 0, dropped: 0 }
  readonly #options: SpanExporterOptions
  readonly #stop = new AbortController()
  readonly #hurry = new AbortController()
  #waiting: string[] = []
  #waitingBytes = 0
  #running: Promise<void> | undefined
  #isFailing = false

  constructor(options: SpanExporterOptions) {
    this.#options = options
  }

  /** Takes a span as text, or drops it when there is no room. */
  add(span: string): void {
    if (
      this.#hurry.signal.aborted ||
      this.#waiting.length >= MAX_WAITING ||
      this.#waitingBytes + span.length > MAX_WAITING_BYTES
    ) {
      this.counts.dropped += 1
      return
    }
    this.#waiting.push(span)
    this.#waitingBytes += span.length
    this.#start()
  }

  /** Sends what waits for up to `withinMs`, then gives up the rest. Idempotent. */
  async close(withinMs: number): Promise<void> {
    this.#hurry.abort()
    const limit = setTimeout(() => this.#stop.abort(), withinMs)
    await this.#running
    clearTimeout(limit)
    this.counts.dropped += this.#waiting.length
    this.#waiting = []
  }

  #start(): void {
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined
      // What came after the last look.
      if (this.#waiting.length > 0 && !this.#stop.signal.aborted) this.#start()
    })
  }

  /** Until nothing waits. */
  async #run(): Promise<void> {
    while (this.#waiting.length > 0 && !this.#stop.signal.aborted) {
      if (this.#waiting.length < MAX_BATCH) await this.#pause(this.#options.gatherMs ?? 1_000)
      await this.#deliver(this.#takeBatch())
    }
  }

  #takeBatch(): readonly string[] {
    let count = 0
    let bytes = 0
    for (const span of this.#waiting) {
      if (count > 0 && (count >= MAX_BATCH || bytes + span.length > MAX_BATCH_BYTES)) break
      count += 1
      bytes += span.length
    }
    this.#waitingBytes -= bytes
    return this.#waiting.splice(0, count)
  }

  async #deliver(batch: readonly string[]): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const rejected = Math.min(batch.length, await this.#send(batch))
        this.counts.rejected += rejected
        this.counts.sent += batch.length - rejected
        this.#noteSuccess()
        return
      } catch (error) {
        this.#noteFault(error)
        if (error instanceof DeliveryFault && error.outlook === 'refused') {
          this.counts.rejected += batch.length
          return
        }
        if (attempt === MAX_ATTEMPTS || this.#hurry.signal.aborted) {
          this.counts.dropped += batch.length
          return
        }
        const asked = error instanceof DeliveryFault ? (error.retryAfterMs ?? 0) : 0
        const doubled = (this.#options.firstPauseMs ?? 500) * 2 ** (attempt - 1) * (0.5 + Math.random() / 2)
        await this.#pause(Math.min(MAX_PAUSE_MS, Math.max(asked, doubled)))
      }
    }
  }

  /** How many the collector took without keeping them. */
  async #send(batch: readonly string[]): Promise<number> {
    const { url, authorizationFile, timeoutMs, instance, version } = this.#options
    const headers = authorizationFile === undefined ? {} : { authorization: readSecret(authorizationFile) }
    const body = `{"resourceSpans":[{"resource":${resource(instance, version)},"scopeSpans":[{"scope":{"name":"sallyport"},"spans":[${batch.join(',')}]}]}]}`
    return rejectedIn(await post({ url, headers, body, timeoutMs, signal: this.#stop.signal }))
  }

  #noteSuccess(): void {
    if (this.#isFailing) this.#options.logger?.info({}, 'the collector of traces takes spans again')
    this.#isFailing = false
  }

  /** Once for each time that it goes wrong, not for each attempt. */
  #noteFault(error: unknown): void {
    if (this.#isFailing || this.#stop.signal.aborted) return
    this.#isFailing = true
    const fault = error instanceof DeliveryFault ? error.message : 'unknown'
    this.#options.logger?.warn({ fault }, 'the collector of traces does not take spans; some will be dropped')
  }

  async #pause(ms: number): Promise<void> {
    await wait(ms, undefined, { signal: this.#hurry.signal, ref: false }).catch(() => undefined)
  }
}

function resource(instance: string, version: string): string {
  const attribute = (key: string, stringValue: string) => ({ key, value: { stringValue } })
  return JSON.stringify({
    attributes: [
      attribute('service.name', 'sallyport'),
      attribute('service.instance.id', instance),
      attribute('service.version', version),
    ],
  })
}

/** A collector that answers with no JSON has taken everything, as its status says. */
function rejectedIn(answer: string): number {
  try {
    const parsed = answerSchema.safeParse(JSON.parse(answer))
    return parsed.success ? (parsed.data.partialSuccess?.rejectedSpans ?? 0) : 0
  } catch {
    return 0
  }
}
