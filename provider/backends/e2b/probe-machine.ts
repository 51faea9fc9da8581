/** Has a machine look for a way out, and makes sense of what it prints. */
import { randomBytes } from 'node:crypto'
import type { WorkerProbe, WorkerProbeReport } from '../../worker-client.ts'
import { malformed } from '../../worker-client/lines.ts'
import { basicCredentials } from './command-environment.ts'
import type { Machine } from './e2b-api.ts'
import type { GatewayPlace } from './gateway-address.ts'
import { runScript } from './machine-script.ts'
import { PROBE_SCRIPT } from './probe-script.ts'
import type { WayOut } from './way-out.ts'

/** What is looked from, and for. */
export interface MachineProbe {
  readonly machine: Machine
  readonly gateway: GatewayPlace
  readonly way: WayOut
  /** Of a command. */
  readonly environment: () => Promise<Readonly<Record<string, string>>>
}

/** @throws SandboxError when what is printed makes no sense; what the control API of the gateway throws */
export async function probeMachine(
  { machine, gateway, way, environment }: MachineProbe,
  { tcp, destination, timeoutMs = 1_000 }: Pick<WorkerProbe, 'tcp' | 'destination' | 'timeoutMs'>,
): Promise<WorkerProbeReport> {
  const isStraight = way.kind === 'socks5-proxy'
  // A name of which nobody has heard: no policy lets it anywhere, and the audit log has it once.
  const asked = isStraight ? `probe-${randomBytes(8).toString('hex')}.sallyport.invalid` : destination
  const words = [
    String(Math.max(1, Math.ceil(timeoutMs / 1_000))),
    isStraight ? 'straight' : gateway.protocol === 'https:' ? 'tls' : 'plain',
    asked,
    gateway.address,
    String(gateway.port),
    ...tcp.flatMap(({ host, port }) => [host, String(port)]),
  ]
  const token = isStraight ? undefined : await way.token()
  const envs = { ...(await environment()), ...(token !== undefined && { SALLYPORT_PROBE: basicCredentials(token) }) }
  const report = readProbe(await runScript(machine, { script: PROBE_SCRIPT, words, envs }), tcp.length)
  if (!isStraight || !('error' in report.gateway) || report.gateway.error !== 'closed') return report
  const reason = await way.decisionOn?.(asked)
  return { ...report, gateway: reason === undefined ? { error: 'not_reached' } : { status: 403, reason } }
}

function readProbe(lines: readonly string[], count: number): WorkerProbeReport {
  const tcp = lines.slice(0, count)
  const [, first = '', second = ''] = /^gateway (\S+) ?(\S*)$/.exec(lines[count] ?? '') ?? []
  if (tcp.length !== count || !tcp.every((each) => /^[A-Za-z0-9_]{1,40}$/.test(each)))
    throw malformed('the outcomes of a probe are not there')
  const isStatus = /^\d{3}$/.test(first)
  return {
    tcp,
    udp: [],
    gateway: isStatus
      ? { status: Number(first), ...(second !== '' && { reason: second }) }
      : { error: /^[A-Za-z0-9_]{1,40}$/.test(second) ? second : 'unknown' },
  }
}
