/** Turns two open sides into a watched tunnel, and writes its end down. */
import { hostText, type Destination } from '../../policies/index.ts'
import { closeEntry } from '../audit/entry.ts'
import type { AuditLog } from '../audit/record.ts'
import type { Clock } from '../clock.ts'
import type { Opened } from '../connection.ts'
import { type HelloInspector, judgeServerName } from '../relay/client-hello.ts'
import { relay, type RelayResult } from '../relay/relay.ts'
import type { Side } from '../relay/side.ts'
import type { ConnectionRequest } from '../request.ts'
import type { Tunnel, Watched } from './registry.ts'

/** What starting a tunnel needs of the gateway. */
export interface TunnelContext {
  /** Puts the tunnel under the watch of the registry. */
  readonly watch: (tunnel: Tunnel) => Watched
  readonly unwatch: (watched: Watched) => void
  readonly audit: AuditLog
  readonly clock: Clock
  /** Whether the server name is compared at this destination. */
  readonly expectsTls: (destination: Destination) => boolean
  readonly onClose: (end: RelayResult & { readonly durationMs: number }) => void
}

/** A connection that was let out and told so; both sides are the tunnel's from here on. */
export interface NewTunnel {
  readonly request: ConnectionRequest
  readonly opened: Opened<Side>
  readonly client: Side
  /** Bytes of the client that came with its request; they go up first. */
  readonly early: Buffer
}

/** Starts relaying, and ends in exactly one `close` line. */
export function startTunnel(context: TunnelContext, { request, opened, client, early }: NewTunnel): void {
  const { watch, unwatch, audit, clock } = context
  const startedMs = clock.monotonicMs()
  const { authorized } = opened
  const { destination } = authorized
  // Not the whole request, which holds the token.
  const { requestId, dialect, target, client: from } = request
  const asked = { requestId, dialect, target, client: from }
  const hello = context.expectsTls(destination) ? inspectorFor(destination) : undefined
  const running = relay(client, opened.upstream, {
    clock,
    ...(authorized.place.pace && { pace: authorized.place.pace }),
    ...(early.length > 0 && { early }),
    ...(hello && { inspect: hello.inspect }),
    onClose: (result) => {
      unwatch(watched)
      const durationMs = clock.monotonicMs() - startedMs
      void audit.write(closeEntry(asked, authorized, { ...result, durationMs, sni: hello?.serverName() }))
      context.onClose({ ...result, durationMs })
    },
  })
  // A relay never ends in the turn that begins it.
  const watched = watch({
    requestId,
    identity: authorized.identity,
    permit: authorized.permit,
    decidedBy: authorized.decidedBy,
    expiresAtMs: authorized.expiresAtMs,
    place: authorized.place,
    relay: running,
  })
}

/** Compares the server name of the hello with the host of the request; remembers it for the audit line. */
function inspectorFor(destination: Destination): {
  readonly inspect: HelloInspector
  readonly serverName: () => string | undefined
} {
  let serverName: string | undefined
  return {
    serverName: () => serverName,
    inspect: {
      judge: (hello) => {
        serverName = hello.serverName
        return judgeServerName(hello, hostText(destination), destination.kind === 'name')
      },
    },
  }
}
