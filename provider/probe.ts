/** Is the only way out the gateway? Tried from inside before a sandbox is handed out: a direct connection must fail, and the gateway must answer. */
import { INSIDE_GATEWAY, type InsideAddress, type StartedSandbox } from './backend.ts'
import type { SandboxCapabilities } from './sandbox.ts'
import { SandboxError } from './sandbox-error.ts'
import type { WorkerClient } from './worker-client.ts'

/** What the probe asks the gateway for: no policy allows it. It is in the audit log once for each sandbox, as `requested`. */
export const PROBE_DESTINATION = '0.0.0.0:1'

/** Of documentation (RFC 5737, RFC 3849): nobody is there, so that a packet that gets out reaches nobody. */
const NOWHERE: readonly InsideAddress[] = [
  { host: '192.0.2.1', port: 443 },
  { host: '2001:db8::1', port: 443 },
]
/** How a connection fails that the kernel does not let go. */
const STOPPED = new Set(['ENETUNREACH', 'EHOSTUNREACH', 'ENETDOWN', 'EACCES', 'EPERM', 'EADDRNOTAVAIL', 'EAFNOSUPPORT'])
/** And how one fails that a filter stops on its way. */
const FILTERED = new Set([...STOPPED, 'ECONNREFUSED', 'ECONNRESET', 'timeout', 'ETIMEDOUT'])
const DIRECT_TIMEOUT_MS = 500

/**
 * Looks.
 * @throws SandboxError `SALLYPORT_SANDBOX_EGRESS_UNENFORCED` when a direct connection can get out; `SALLYPORT_SANDBOX_CREATE_FAILED` when the gateway
 * does not answer, or not as one that knows the sandbox
 */
export async function probeEgress(
  client: WorkerClient,
  started: StartedSandbox,
  { enforcement }: SandboxCapabilities,
): Promise<void> {
  const hasRoute = started.directTargets !== undefined
  const direct = enforcement === 'none' ? [] : (started.directTargets ?? NOWHERE)
  const udp = hasRoute ? [] : direct
  const report = await client.probe({
    tcp: direct,
    udp,
    gateway: started.gateway ?? INSIDE_GATEWAY,
    destination: PROBE_DESTINATION,
    timeoutMs: DIRECT_TIMEOUT_MS,
  })
  const closed = hasRoute ? FILTERED : STOPPED
  const open = [...found('tcp', direct, report.tcp), ...found('udp', udp, report.udp)].filter(
    ({ outcome }) => !closed.has(outcome),
  )
  if (open.length > 0) {
    const which = open
      .map(({ kind, target, outcome }) => `${kind} to ${target.host} port ${target.port}: ${outcome}`)
      .join('; ')
    throw new SandboxError(
      'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
      `a connection that goes round the gateway is not stopped (${which})`,
    )
  }
  const { gateway } = report
  if ('error' in gateway)
    throw new SandboxError(
      'SALLYPORT_SANDBOX_CREATE_FAILED',
      `the gateway does not answer inside the sandbox: ${gateway.error}`,
    )
  // Anything but a policy's answer means that the gateway does not know who asks.
  if (gateway.status === 407 || gateway.reason === undefined) {
    throw new SandboxError(
      'SALLYPORT_SANDBOX_CREATE_FAILED',
      `the gateway does not serve the sandbox: ${gateway.status} ${gateway.reason ?? 'without a reason'}`,
    )
  }
}

function found(
  kind: 'tcp' | 'udp',
  targets: readonly InsideAddress[],
  outcomes: readonly string[],
): { kind: string; target: InsideAddress; outcome: string }[] {
  return targets.map((target, index) => ({ kind, target, outcome: outcomes[index] ?? 'missing' }))
}
