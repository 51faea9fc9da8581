/** One trace for each connection that is sampled: identity, policy, dns, connect and relay below the whole. Loaded only when a collector is configured. */
import type { AuthEntry, CloseEntry, DecisionEntry } from '../audit/record.ts'
import type { Clock } from '../clock.ts'
import { describeReason } from '../reasons.ts'
import type { StepTimes } from '../request.ts'
import { createSampler } from './sampler.ts'
import { attributesOf, SHOWN, type Span, spanText } from './span.ts'
import { SpanExporter, type SpanExporterOptions } from './span-exporter.ts'
import { newSpanId, newTraceId, parseTraceparent, type TraceParent } from './trace-context.ts'

/** Settings of {@link createTracer}. */
export interface TracerOptions extends SpanExporterOptions {
  readonly ratio: number
  readonly maxPerSecond: number
  readonly clock: Clock
  /** Connections that are traced at the same time; those beyond are not. Default 10,000, of some hundred bytes each. */
  readonly maxOpen?: number
}

/** Makes traces of audit lines. Never throws, and nothing waits for it. */
export interface Tracer {
  /** A request was answered. `traceparent` is what the client sent; `times` are those of its first steps, on the monotonic clock. */
  readonly begin: (
    traceparent: string | undefined,
    times: StepTimes,
    entry: AuthEntry | DecisionEntry,
    isOut: boolean,
  ) => void
  /** What was let out has ended. */
  readonly end: (entry: CloseEntry) => void
  /** Spans so far, by what became of them. */
  readonly counts: () => Readonly<Record<'sent' | 'rejected' | 'dropped', number>>
  /** Sends what waits for a moment. Idempotent. */
  readonly close: () => Promise<void>
}

/** A trace whose connection is open. */
interface Open {
  readonly root: Omit<Span, 'endMs'>
  readonly relayStartMs: number
}

/** For the last spans to leave. */
const LAST_SPANS_MS = 2000

/** Connects nothing before the first span. */
export function createTracer(options: TracerOptions): Tracer {
  const { clock, maxOpen = 10_000 } = options
  const isKept = createSampler({ ...options, monotonicMs: clock.monotonicMs })
  const exporter = new SpanExporter(options)
  const open = new Map<string, Open>()
  const send = (span: Span): void => exporter.add(spanText(span))

  return {
    begin: (traceparent, times, entry, isOut) => {
      const parent = parseTraceparent(traceparent)
      const traceId = parent?.traceId ?? newTraceId()
      if (!isKept(traceId)) return
      const nowMs = clock.wallMs()
      const startMs = nowMs - Math.max(0, clock.monotonicMs() - times.startedMs)
      const told = isOut || entry.kind === 'auth' || entry.dialled === undefined ? entry : unrecorded(entry)
      const root = rootOf({ traceId, parent, startMs, entry: told })
      for (const part of partsOf(root, times, told)) send(part)
      const { request_id: requestId } = entry
      if (!isOut || requestId === undefined) send({ ...root, endMs: nowMs })
      else if (open.size < maxOpen) open.set(requestId, { root, relayStartMs: nowMs })
      // Its two last spans.
      else exporter.counts.dropped += 2
    },
    end: (entry) => {
      const { request_id: requestId = '' } = entry
      const traced = open.get(requestId)
      if (traced === undefined) return
      open.delete(requestId)
      const { root, relayStartMs } = traced
      const attributes = attributesOf(entry)(SHOWN.relay)
      const endMs = clock.wallMs()
      const fault = entry.close_reason === 'error' ? 'error' : undefined
      send({ ...childOf(root, 'relay', relayStartMs, endMs), attributes, fault })
      send({ ...root, endMs, attributes: [...root.attributes, ...attributes], fault })
    },
    counts: () => exporter.counts,
    close: () => exporter.close(LAST_SPANS_MS),
  }
}

/** What would have been let out and was not: its line could not be written. */
function unrecorded(entry: DecisionEntry): DecisionEntry {
  return { ...entry, effective: 'deny', reason: 'audit_unavailable' }
}

function rootOf(from: {
  readonly traceId: string
  readonly parent: TraceParent | undefined
  readonly startMs: number
  readonly entry: AuthEntry | DecisionEntry
}): Omit<Span, 'endMs'> {
  const { traceId, parent, startMs, entry } = from
  return {
    traceId,
    spanId: newSpanId(),
    parentId: parent?.parentId,
    isRemoteParent: parent !== undefined,
    name: 'connection',
    startMs,
    attributes: attributesOf(entry)(SHOWN.connection),
    fault: faultOf(entry),
  }
}

/** The steps, one after the other, as they were taken. */
function partsOf(root: Omit<Span, 'endMs'>, times: StepTimes, entry: AuthEntry | DecisionEntry): readonly Span[] {
  let atMs = root.startMs
  const part = (name: Span['name'], ms: number | undefined, more: Partial<Span> = {}): readonly Span[] => {
    if (ms === undefined) return []
    const span = { ...childOf(root, name, atMs, atMs + ms), ...more }
    atMs += ms
    return [span]
  }
  const fault = faultOf(entry)
  const steps = [...part('identity', times.identityMs), ...part('policy', times.policyMs)]
  if (entry.kind === 'auth') return steps
  const shown = attributesOf(entry)
  const failed = (step: string) => (entry.reason?.startsWith(step) === true ? fault : undefined)
  return [
    ...steps,
    ...part('dns', entry.dns_ms, { attributes: shown(SHOWN.dns), fault: failed('dns_') }),
    ...part('connect', entry.connect_ms, { attributes: shown(SHOWN.connect), fault: failed('connect_') }),
  ]
}

function childOf(root: Omit<Span, 'endMs'>, name: Span['name'], startMs: number, endMs: number): Span {
  const { traceId, spanId } = root
  const ids = { traceId, spanId: newSpanId(), parentId: spanId, isRemoteParent: false }
  return { ...ids, name, startMs, endMs, attributes: [] }
}

/** The status that a client would be told says whose fault it is. */
function faultOf({ reason }: AuthEntry | DecisionEntry): string | undefined {
  return reason !== undefined && describeReason(reason).status >= 500 ? reason : undefined
}
