/** What machines of E2B can do and what is enforced on them, for each way of holding them to the gateway. */
import type { SandboxCapabilities } from '../../sandbox.ts'
import type { ResolvedE2bOptions } from './e2b-options.ts'

/** See {@link SandboxCapabilities}. */
export function capabilitiesOf({
  egress,
  unsafeTokenInClear,
  unsafePrivateGateway,
}: ResolvedE2bOptions): SandboxCapabilities {
  const isStraight = egress === 'socks5-proxy'
  return {
    enforcement: 'platform',
    streaming: true,
    spawn: true,
    runtimeEgressChange: true,
    memoryLimit: false,
    processLimit: false,
    timeToLive: true,
    attach: true,
    opensBeforeDecision: true,
    ...(isStraight ? { transparentEgress: true } : { tokenInEnvironment: true }),
    anySocket: true,
    leftOpen: [
      ...(isStraight ? STRAIGHT : WITH_TOKEN),
      'E2B itself sees what is run, its environment and its output',
      'a fault in E2B’s firewall or in its machines is a way out',
      ...(unsafeTokenInClear ? [`${isStraight ? 'handles' : 'tokens'} cross the network in the clear`] : []),
      ...(unsafePrivateGateway ? ['the gateway need not be at a public address'] : []),
    ],
  }
}

const WITH_TOKEN: readonly string[] = [
  'every port of the gateway’s address can be reached, not its proxy’s alone',
  'commands have the token of their sandbox in their environment; one that runs for longer than ten minutes opens no new connections then',
]

const STRAIGHT: readonly string[] = [
  'datagrams to 8.8.8.8 go past the gateway, so whoever keeps a name server can be told things by the names that are asked for, and answer',
  'a connection is cut when the handle it was opened with ends, within ten minutes',
  'E2B keeps the handle, and says by which name a connection goes',
]
