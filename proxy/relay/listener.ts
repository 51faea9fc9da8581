/** What all listeners share: their types, and how an accepted connection becomes a side with a client. */
import net from 'node:net'
import type tls from 'node:tls'
import { SallyportError } from '../../policies/error.ts'
import { type Door, WEIGHT } from '../door.ts'
import type { ClientInfo } from '../request.ts'
import type { Identity } from '../tokens/identity.ts'
import { HandleWire } from './handle-wire.ts'
import { peerOf, resetUnread, takeConnections } from './node-handles.ts'
import { Side } from './side.ts'
import { SocketWire } from './socket-wire.ts'
import { turns } from './turns.ts'
import type { Wire } from './wire.ts'

/** What every listener takes. */
export interface ListenCommon {
  /** The identity that every connection of this listener carries. */
  readonly bound?: Identity
  /** A connection, not yet read. */
  readonly onSide: (side: Side, client: ClientInfo) => void
  /** Faults of a single connection or of accepting (a failed TLS handshake, no descriptors left); the listener goes on. */
  readonly onFault?: (fault: ListenFault) => void
  /** Who is closed at once. Default: nobody. */
  readonly door?: Pick<Door, 'isOpenToAll' | 'turnsAway' | 'cameToNothing'>
}

/** What went wrong while listening; `code` is the system's or OpenSSL's. */
export interface ListenFault {
  readonly kind: 'accept' | 'tls_handshake'
  readonly code: string
}

/** Certificates of a TLS listener, as PEM. */
export interface TlsMaterial {
  readonly cert: string | Buffer
  readonly key: string | Buffer
  /** Asks clients for a certificate that it issued. */
  readonly clientCa?: string | Buffer
  /** Whether a client without such a certificate is refused (`require`, the default) or let in without one (`request`). */
  readonly clientCertificate?: 'require' | 'request' | undefined
}

/** An open listener. */
export interface Listener {
  /** The bound address, or `unix`. */
  readonly address: string
  /** The bound port; 0 for a unix socket. */
  readonly port: number
  /**
   * New certificates for connections from now on; nothing happens without TLS.
   * @throws SallyportError `SALLYPORT_KEY_UNREADABLE` when they can't be used; the old ones stay
   */
  reload(material: TlsMaterial): void
  /** Stops accepting; open connections go on. Idempotent. */
  close(): Promise<void>
}

/** Connections that wait to be accepted, for each listener; the system may allow fewer. */
export const BACKLOG = 4096

/** Whether a connection that has just come in is to be closed unread. Whoever asks closes it, best with a reset: that costs least, here and in the kernel. */
export function isTurnedAway(
  { door, bound }: ListenCommon,
  peerAddress: () => string | undefined,
  kind: 'tcp' | 'unix',
): boolean {
  if (door === undefined || door.isOpenToAll) return false
  const address = kind === 'unix' ? 'unix' : canonicalAddress(peerAddress())
  return door.turnsAway(bound === undefined ? { address } : { address, bound })
}

/** Books a TLS handshake that failed. */
export function handshakeFailed({ door, onFault }: ListenCommon, socket: tls.TLSSocket, code: string): void {
  door?.cameToNothing({ address: canonicalAddress(socket.remoteAddress) }, WEIGHT.handshake)
  onFault?.({ kind: 'tls_handshake', code })
}

/** Hands an accepted connection on, unread, with what is known of its client. */
export function handOver(options: ListenCommon, wire: Wire, kind: 'tcp' | 'unix', thumbprint?: string): void {
  turns.arrived()
  const { peer } = wire
  const side = new Side(wire)
  const isUnix = kind === 'unix'
  const address = isUnix ? 'unix' : canonicalAddress(peer.address)
  const port = isUnix ? 0 : (peer.port ?? 0)
  if (thumbprint === undefined && options.bound === undefined) options.onSide(side, { address, port })
  else
    options.onSide(side, {
      address,
      port,
      ...(thumbprint !== undefined && { certificateThumbprint: thumbprint }),
      ...(options.bound !== undefined && { bound: options.bound }),
    })
}

/** A server without TLS whose connections are handed over; see {@link acceptByHandle} for when it listens. */
export function createPlainServer(options: ListenCommon, kind: 'tcp' | 'unix'): net.Server {
  return net.createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, (socket) => {
    const wire = new SocketWire(socket)
    if (isTurnedAway(options, () => wire.peer.address, kind)) wire.abort()
    else handOver(options, wire, kind)
  })
}

/** From here on the connections of a plain server that listens are accepted without a socket made for each, where that can be done. */
export function acceptByHandle(server: net.Server, options: ListenCommon, kind: 'tcp' | 'unix'): void {
  takeConnections(server, (handle) => {
    if (isTurnedAway(options, () => peerOf(handle).address, kind)) {
      resetUnread(handle)
      return
    }
    handle.setNoDelay?.(true)
    handOver(options, new HandleWire(handle), kind)
  })
}

/** Opens a server, and keeps its later faults from ending the process. */
export async function openServer(
  server: net.Server,
  where: string,
  options: net.ListenOptions,
  common?: Pick<ListenCommon, 'onFault'>,
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const refused = (fault: NodeJS.ErrnoException): void => reject(listenFailed(where, fault))
    server.once('error', refused)
    server.listen({ ...options, backlog: BACKLOG }, () => {
      server.off('error', refused)
      server.on('error', (fault: NodeJS.ErrnoException) =>
        common?.onFault?.({ kind: 'accept', code: fault.code ?? 'UNKNOWN' }),
      )
      resolve()
    })
  })
}

/** Stops accepting. Does not wait for what was accepted: those connections have other owners. */
export function closeServers(servers: readonly net.Server[]): Promise<void> {
  for (const server of servers) server.close()
  // The listening descriptors are closed by now; their callbacks come at the end of this turn.
  return new Promise((resolve) => setImmediate(resolve))
}

const WHY: Readonly<Record<string, string>> = {
  EADDRINUSE: 'it is in use',
  EACCES: 'not permitted',
  EPERM: 'not permitted',
  EADDRNOTAVAIL: 'this machine has no such address',
  ENOENT: 'its folder does not exist',
  ENOTDIR: 'its folder does not exist',
  EROFS: 'its folder is read-only',
}

/** One line for whoever started it. */
export function listenFailed(where: string, fault: NodeJS.ErrnoException): SallyportError {
  const why = WHY[fault.code ?? ''] ?? fault.code ?? 'unknown fault'
  return new SallyportError('SALLYPORT_LISTEN_FAILED', `can't listen on \`${where}\`: ${why}`, { cause: fault })
}

/** IPv4 clients of an IPv6 listener are IPv4; a zone is the machine's affair. A peer that has already left has no address any more. */
function canonicalAddress(address: string | undefined): string {
  if (address === undefined) return 'unknown'
  if (!address.includes(':')) return address
  return address.replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '')
}
