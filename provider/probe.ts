/** Is the only way out the gateway? Tried from inside before a sandbox is handed out: a direct connection must fail, and the gateway must answer. */
import { INSIDE_GATEWAY, type InsideAddress, type StartedSandbox } from './backend.ts'
import type { SandboxCapabilities } from './sandbox.ts'
import { SandboxError } from './sandbox-error.ts'
import type { WorkerClient, WorkerProbe, WorkerProbeReport } from './worker-client.ts'

/** What the probe asks the gateway for: no policy allows it. It is in the audit log once for each sandbox, as `requested`. */
export const PROBE_DESTINATION = '0.0.0.0:1'

/** Of documentation (RFC 5737, RFC 3849): nobody is there, so that a packet that gets out reaches nobody. */
const NOWHERE: readonly InsideAddress[] = [
  { host: '192.0.2.1', port: 443 },
  { host: '2001:db8::1', port: 443 },
]
/** How a connection fails that the kernel does not let go. */
const STOPPED = new Set([
  'no_device',
  'ENETUNREACH',
  'EHOSTUNREACH',
  'ENETDOWN',
  'EACCES',
  'EPERM',
  'EADDRNOTAVAIL',
  'EAFNOSUPPORT',
])
/** And how one fails that a filter stops on its way. */
const FILTERED = new Set([...STOPPED, 'ECONNREFUSED', 'ECONNRESET', 'timeout', 'ETIMEDOUT'])
const DIRECT_TIMEOUT_MS = 500
const NOT_OF_A_POLICY = new Set([407, 502, 504])

/** What a worker without a route is to look for. It may do so at its start. */
export function probeFor({ enforcement }: SandboxCapabilities): WorkerProbe {
  return probeOf({}, enforcement)
}

/**
 * Looks. What the worker found at its start is enough when all is as it should be; else it looks again, now that the way out is there for sure.
 * @throws SandboxError `SALLYPORT_SANDBOX_EGRESS_UNENFORCED` when a direct connection can get out; `SALLYPORT_SANDBOX_CREATE_FAILED` when the gateway
 * does not answer, or not as one that knows the sandbox
 */
export async function probeEgress(
  client: WorkerClient,
  started: StartedSandbox,
  { enforcement }: SandboxCapabilities,
): Promise<void> {
  const { directTargets, gateway, probed } = started
  const probe = probeOf(started, enforcement)
  const wasAsked = directTargets === undefined && gateway === undefined
  if (wasAsked && probed !== undefined && faultIn(probed, probe, STOPPED) === undefined) return
  const fault = faultIn(await client.probe(probe), probe, directTargets === undefined ? STOPPED : FILTERED)
  if (fault !== undefined) throw fault
}

function probeOf(
  { directTargets, gateway = INSIDE_GATEWAY }: Pick<StartedSandbox, 'directTargets' | 'gateway'>,
  enforcement: SandboxCapabilities['enforcement'],
): WorkerProbe {
  const direct = enforcement === 'none' ? [] : (directTargets ?? NOWHERE)
  return {
    tcp: direct,
    udp: directTargets === undefined ? direct : [],
    gateway,
    destination: PROBE_DESTINATION,
    timeoutMs: DIRECT_TIMEOUT_MS,
  }
}

function faultIn(report: WorkerProbeReport, probe: WorkerProbe, closed: ReadonlySet<string>): SandboxError | undefined {
  const open = [...found('tcp', probe.tcp, report.tcp), ...found('udp', probe.udp, report.udp)].filter(
    ({ outcome }) => !closed.has(outcome),
  )
  if (open.length > 0) {
    const which = open
      .map(({ kind, target, outcome }) => `${kind} to ${target.host} port ${target.port}: ${outcome}`)
      .join('; ')
    return new SandboxError(
      'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
      `a connection that goes round the gateway is not stopped (${which})`,
    )
  }
  const { gateway } = report
  if ('error' in gateway)
    return new SandboxError(
      'SALLYPORT_SANDBOX_CREATE_FAILED',
      `the gateway does not answer inside the sandbox: ${gateway.error}`,
    )
  // Anything but a policy's answer means that the gateway does not know who asks, or that somebody on the way to it did not get there.
  if (NOT_OF_A_POLICY.has(gateway.status) || gateway.reason === undefined) {
    return new SandboxError(
      'SALLYPORT_SANDBOX_CREATE_FAILED',
      `the gateway does not serve the sandbox: ${gateway.status} ${gateway.reason ?? 'without a reason'}`,
    )
  }
  return undefined
}

function found(
  kind: 'tcp' | 'udp',
  targets: readonly InsideAddress[],
  outcomes: readonly string[],
): { kind: string; target: InsideAddress; outcome: string }[] {
  return targets.map((target, index) => ({ kind, target, outcome: outcomes[index] ?? 'missing' }))
}
