/** Does the audit log account for everything that the clients saw? Looks at answers, lines and what was done to the gateways; changes nothing. */
import type { Seen } from './client.ts'

/** A line, as far as this goes. */
export interface SoakLine {
  readonly instance: string
  readonly kind: string
  readonly action?: string
  readonly request_id?: string
  readonly requested?: string
  readonly effective?: string
  readonly reason?: string
  readonly lost?: number
}

/** From when to when something was done, milliseconds since the epoch. */
export interface Span {
  readonly what: 'kill' | 'disk' | 'dns' | 'reset'
  /** The gateway that was killed. */
  readonly gateway?: string
  readonly fromMs: number
  readonly toMs: number
}

/** What a fault may still show in after it is over: timeouts of names and connections are five seconds, and the machine may be busy. */
const AFTERMATH_MS = 15_000
/** The lines of ends that a killed process had not written: 20 ms, and the way back to the client. */
const LATE_MS = 3000

/** One sentence for each thing that is not accounted for. */
export function unaccounted(seen: readonly Seen[], lines: readonly SoakLine[], spans: readonly Span[]): string[] {
  const faults: string[] = []
  const near = (what: Span['what'], fromMs: number, toMs: number, gateway?: string) =>
    spans.some(
      (span) =>
        span.what === what &&
        (span.gateway ?? gateway) === gateway &&
        fromMs <= span.toMs + AFTERMATH_MS &&
        toMs >= span.fromMs,
    )
  const byTarget = Map.groupBy(
    lines.filter(({ kind }) => kind === 'decision' || kind === 'auth'),
    ({ requested }) => requested ?? '',
  )
  const closed = new Set(lines.filter(({ kind }) => kind === 'close').map(({ request_id }) => request_id))
  for (const one of seen) {
    const { target, answer, startedMs, endedMs, gateway } = one
    const own = byTarget.get(target) ?? []
    const wasKilled = near('kill', startedMs, endedMs, gateway)
    const explained =
      /^(?:200|403 host_not_allowed|407 token_revoked)$/.test(answer) ||
      (answer === 'gone' && wasKilled) ||
      (answer === '503 audit_unavailable' && near('disk', startedMs, endedMs)) ||
      (/^50[24] dns_/.test(answer) && near('dns', startedMs, endedMs)) ||
      (/^50[24] connect_/.test(answer) && near('reset', startedMs, endedMs))
    if (!explained) faults.push(`${target}: nothing explains \`${answer}\``)
    if (own.length > 1) faults.push(`${target}: ${own.length} decisions for one connection`)
    const [line] = own
    if (answer === 'gone') continue
    if (line === undefined) {
      faults.push(`${target}: answered ${answer}, and there is no line`)
      continue
    }
    const [status = '', reason] = answer.split(' ')
    // Policy let out what then had no address, or nobody who answered: the reason says so.
    const isLetOut = status === '200' || /^(?:dns|connect)_/.test(reason ?? '')
    if ((line.effective === 'allow') !== isLetOut || line.reason !== reason)
      faults.push(`${target}: answered ${answer}, and the line says ${line.effective} ${line.reason}`)
    const mayMissEnd = spans.some(
      (span) =>
        span.what === 'kill' && span.gateway === gateway && startedMs <= span.toMs && endedMs >= span.fromMs - LATE_MS,
    )
    if (answer === '200' && !closed.has(line.request_id) && !mayMissEnd)
      faults.push(`${target}: let out, and no line says that it ended`)
  }
  const known = new Set(seen.map(({ target }) => target))
  for (const target of byTarget.keys()) if (!known.has(target)) faults.push(`${target}: a line, and nobody asked`)
  for (const { lost = 0, instance } of lines) if (lost > 0) faults.push(`${instance}: ${lost} lines were lost`)
  return faults
}
