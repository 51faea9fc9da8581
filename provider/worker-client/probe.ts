/** Has the worker look for a way out. */
import type { WorkerProbe, WorkerProbeReport } from '../worker-client.ts'
import { call, type FaultMaker, jsonBody } from './call.ts'
import type { Link } from './exchange.ts'
import { malformed } from './lines.ts'

/** The method. */
export function probeMethod(link: Link, fault: FaultMaker): (probe: WorkerProbe) => Promise<WorkerProbeReport> {
  return async (probe) => {
    return parseProbeReport(probe, await call(link, fault, { method: 'POST', path: '/probe', ...jsonBody(probe) }))
  }
}

/** @throws SandboxError when it makes no sense as the report of `probe` */
export function parseProbeReport(probe: WorkerProbe, report: Readonly<Record<string, unknown>>): WorkerProbeReport {
  const { tcp, udp, gateway } = report
  if (typeof gateway !== 'object' || gateway === null) throw malformed('`gateway` is no answer')
  const { status, reason, error } = gateway as Record<string, unknown>
  return {
    tcp: outcomes(tcp, probe.tcp.length),
    udp: outcomes(udp, probe.udp.length),
    gateway:
      typeof status === 'number'
        ? { status, ...(isWord(reason) && { reason }) }
        : { error: isWord(error) ? error : 'unknown' },
  }
}

function outcomes(value: unknown, count: number): readonly string[] {
  if (Array.isArray(value) && value.length === count && value.every(isWord)) return value
  throw malformed('the outcomes of a probe are not there')
}

function isWord(value: unknown): value is string {
  return typeof value === 'string' && /^[A-Za-z0-9_]{1,40}$/.test(value)
}
