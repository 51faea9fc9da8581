/** Does the audit log account for everything that the clients saw? Looks at answers, lines and what was done to the gateways; changes nothing. */
import type { Seen } from './client.ts'

/** A line, as far as this goes. */
export interface SoakLine {
  readonly instance: string
  readonly kind: string
  readonly time: string
  readonly request_id?: string
  readonly requested?: string
  readonly effective?: string
  readonly reason?: string
  readonly close_reason?: string
  readonly lost?: number
}

/** From when to when something was done, milliseconds since the epoch; `stall` is the machine's own doing: nothing of the soak had a turn. */
export interface Span {
  readonly what: 'kill' | 'disk' | 'dns' | 'reset' | 'stall'
  /** The gateway that was killed, or one of whose workers was. */
  readonly gateway?: string
  readonly fromMs: number
  readonly toMs: number
}

/** What a fault may still show in after it is over: timeouts of names and connections are five seconds, and the machine may be busy. */
const AFTERMATH_MS = 15_000
/** What was killed answers nobody any more: only clocks and the way here lie in between. */
const KILL_AFTERMATH_MS = 2000
/** `timeouts.headSeconds`. */
const HEAD_MS = 10_000
/** Every gateway has read a revocation by then, however busy the machine. */
const REVOKED_MS = 10_000
const ORDINARY_ENDS: readonly (string | undefined)[] = ['client_closed', 'upstream_closed', 'token_revoked']

/** One sentence for each thing that is not accounted for. */
export function unaccounted(seen: readonly Seen[], lines: readonly SoakLine[], spans: readonly Span[]): string[] {
  const byTarget = Map.groupBy(
    lines.filter(({ kind }) => kind === 'decision' || kind === 'auth'),
    ({ requested }) => requested ?? '',
  )
  const known = new Set(seen.map(({ target }) => target))
  return [
    ...seen.flatMap((one) => [...unexplained(one, spans), ...unwritten(one, byTarget.get(one.target) ?? [])]),
    ...[...byTarget.keys()].flatMap((target) => (known.has(target) ? [] : [`${target}: a line, and nobody asked`])),
    ...lines.flatMap(({ lost = 0, instance }) => (lost > 0 ? [`${instance}: ${lost} lines were lost`] : [])),
    ...wrongEnds(lines, spans),
  ]
}

/** Answers that nothing that was done accounts for. */
function unexplained(one: Seen, spans: readonly Span[]): string[] {
  const { target, answer, startedMs, endedMs, gateway, token, isIntact } = one
  const { revokedMs = Infinity } = token
  const isNear = (what: Span['what']) => near(spans, what, startedMs, endedMs, gateway)
  const isExplained =
    (answer === '200' && target.includes('.let.') && startedMs <= revokedMs + REVOKED_MS) ||
    (answer === '403 host_not_allowed' && target.includes('.refused.')) ||
    (answer === '407 token_revoked' && endedMs >= revokedMs - KILL_AFTERMATH_MS) ||
    (answer === 'gone' && isNear('kill')) ||
    // Nobody had a turn for so long that the time for the head was over, or the client's patience.
    (answer === 'gone' && isNear('stall') && endedMs - startedMs >= HEAD_MS) ||
    (answer === '503 audit_unavailable' && isNear('disk')) ||
    (/^50[24] dns_/.test(answer) && (isNear('dns') || isNear('stall'))) ||
    (/^50[24] connect_/.test(answer) && (isNear('reset') || isNear('stall'))) ||
    // A worker that does not hear of the supervising process for five seconds lets nothing out.
    (answer === '503 gateway_busy' && gateway === 'tree' && isNear('stall'))
  return [
    ...(isExplained ? [] : [`${target} of ${gateway}: nothing explains \`${answer}\`${howItEnded(one, spans)}`]),
    ...(isIntact ? [] : [`${target} of ${gateway}: other bytes came back than were sent`]),
  ]
}

/** For who looks for the cause. */
function howItEnded({ startedMs, endedMs, ending, gateway }: Seen, spans: readonly Span[]): string {
  const last = spans
    .filter((span) => span.what === 'kill' && span.gateway === gateway && span.fromMs <= startedMs)
    .at(-1)
  const kill =
    last === undefined
      ? ''
      : `, begun ${startedMs - last.fromMs} ms after a kill that took ${last.toMs - last.fromMs} ms`
  return ` (${ending} after ${endedMs - startedMs} ms, at ${new Date(startedMs).toISOString()}${kill})`
}

/** Whether the line of a connection says what its client was told. */
function unwritten({ target, answer }: Seen, own: readonly SoakLine[]): string[] {
  if (own.length > 1) return [`${target}: ${own.length} decisions for one connection`]
  // Its gateway may have gone before or after it had written the line.
  if (answer === 'gone') return []
  const [line] = own
  if (line === undefined) return [`${target}: answered ${answer}, and there is no line`]
  const [status = '', reason] = answer.split(' ')
  // Policy let out what then had no address, or nobody who answered: the reason says so.
  const isLetOut = status === '200' || isUnreached(reason)
  return (line.effective === 'allow') !== isLetOut || line.reason !== reason
    ? [`${target}: answered ${answer}, and the line says ${line.effective} ${line.reason}`]
    : []
}

/** Each tunnel that was let out has one end, and nothing else has one. */
function wrongEnds(lines: readonly SoakLine[], spans: readonly Span[]): string[] {
  const open = new Map<string | undefined, SoakLine>()
  const faults: string[] = []
  for (const line of lines)
    if (line.kind === 'decision' && line.effective === 'allow' && !isUnreached(line.reason)) {
      if (open.has(line.request_id)) faults.push(`${line.requested}: two decisions with one id`)
      open.set(line.request_id, line)
    }
  for (const { kind, request_id, requested, close_reason, time, instance } of lines) {
    if (kind !== 'close') continue
    const opened = open.get(request_id)
    if (opened === undefined) faults.push(`${requested}: it ended twice, or never began`)
    open.delete(request_id)
    const [fromMs, toMs] = [Date.parse(opened?.time ?? time), Date.parse(time)]
    const isExplained =
      ORDINARY_ENDS.includes(close_reason) ||
      // A worker writes into `tree-1`: the gateway is `tree`.
      (close_reason === 'process_lost' && near(spans, 'kill', fromMs, toMs, instance.replace(/-\d+$/, ''))) ||
      (close_reason === 'error' && near(spans, 'reset', fromMs, toMs))
    if (!isExplained) faults.push(`${requested} of ${instance}: nothing explains that it ended by \`${close_reason}\``)
  }
  return [
    ...faults,
    ...[...open.values()].map(({ requested }) => `${requested}: let out, and no line says that it ended`),
  ]
}

function near(spans: readonly Span[], what: Span['what'], fromMs: number, toMs: number, gateway?: string): boolean {
  const aftermathMs = what === 'kill' ? KILL_AFTERMATH_MS : AFTERMATH_MS
  return spans.some(
    (span) =>
      span.what === what &&
      (span.gateway ?? gateway) === gateway &&
      fromMs <= span.toMs + aftermathMs &&
      toMs >= span.fromMs - KILL_AFTERMATH_MS,
  )
}

function isUnreached(reason: string | undefined): boolean {
  return /^(?:dns|connect)_/.test(reason ?? '')
}
