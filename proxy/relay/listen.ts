/** TCP ports that clients come in by, in plain or over TLS, with several listeners each. */
import { constants } from 'node:crypto'
import net from 'node:net'
import tls from 'node:tls'
import { SallyportError } from '../../policies/error.ts'
import {
  acceptByHandle,
  closeServers,
  createPlainServer,
  handOver,
  handshakeFailed,
  isTurnedAway,
  type ListenCommon,
  type Listener,
  openServer,
  type TlsMaterial,
} from './listener.ts'
import { SocketWire } from './socket-wire.ts'
import { whyUnreadable } from '../unreadable.ts'

export type { ListenCommon, Listener, TlsMaterial } from './listener.ts'
export { listenUnix } from './listen-unix.ts'

/** A TCP port. */
export interface ListenTcpOptions extends ListenCommon {
  /** An address to bind. */
  readonly host: string
  /** 0: a free one. */
  readonly port: number
  /**
   * How many listeners share the port in this process: each accepts one connection a turn of the event loop, so that a busy loop still lets several in.
   * Default 8; always 1 where the system can't share a port.
   */
  readonly listeners?: number
  /** Other processes of the same gateway have the port too. Default: it has to be free. */
  readonly isShared?: boolean
  /** TLS to the proxy. */
  readonly tls?: TlsMaterial
  /** How long a TLS handshake may take, in milliseconds. Default 10 000. */
  readonly handshakeTimeoutMs?: number
}

/** Where libuv knows how to share a port (`SO_REUSEPORT`, spread by the kernel). */
const SHARES_PORTS = new Set(['linux', 'freebsd', 'sunos', 'aix'])

/**
 * Opens a TCP port.
 * @throws SallyportError `SALLYPORT_LISTEN_FAILED` or `SALLYPORT_KEY_UNREADABLE`, with one line that says why
 */
export async function listenTcp(options: ListenTcpOptions): Promise<Listener> {
  const { host } = options
  const count = SHARES_PORTS.has(process.platform) ? (options.listeners ?? 8) : 1
  const servers = Array.from({ length: count }, () => createServer(options))
  const opened: net.Server[] = []
  let { port } = options
  const open = async (server: net.Server, reusePort: boolean): Promise<void> => {
    await openServer(server, whereOf(host, port), { host, port, ...(reusePort && { reusePort }) }, options)
    if (options.tls === undefined) acceptByHandle(server, options, 'tcp')
    opened.push(server)
    port = (server.address() as net.AddressInfo).port
  }
  if (count > 1 && port !== 0 && options.isShared !== true) await probeTcp(options)
  try {
    for (const server of servers) await open(server, count > 1)
  } catch (error) {
    await closeServers(opened)
    throw error
  }
  return {
    address: host,
    port,
    reload: (material) => {
      for (const server of servers) if (server instanceof tls.Server) reloadServer(server, options, material)
    },
    close: () => closeServers(servers),
  }
}

/**
 * A shared port would also be shared with another gateway of the same user, half the connections each: so it must be free for one alone first. Resolves with
 * the port, which for 0 was free a moment ago.
 * @throws SallyportError `SALLYPORT_LISTEN_FAILED`
 */
export async function probeTcp({ host, port }: Pick<ListenTcpOptions, 'host' | 'port'>): Promise<number> {
  const server = net.createServer()
  await openServer(server, whereOf(host, port), { host, port })
  const found = (server.address() as net.AddressInfo).port
  await closeServers([server])
  return found
}

/** Whether several processes can have one port here, each with connections of its own. */
export function canShareTcp(): boolean {
  return SHARES_PORTS.has(process.platform)
}

function createServer(options: ListenTcpOptions): net.Server {
  if (options.tls === undefined) return createPlainServer(options, 'tcp')
  const server = tls.createServer(
    {
      allowHalfOpen: true,
      noDelay: true,
      ...contextOf(options.tls),
      requestCert: options.tls.clientCa !== undefined,
      rejectUnauthorized: requiresCertificate(options.tls),
      handshakeTimeout: options.handshakeTimeoutMs ?? 10_000,
      ALPNProtocols: ['http/1.1'],
    },
    (socket) => handOver(options, new SocketWire(socket), 'tcp', thumbprintOf(socket)),
  )
  server.on('tlsClientError', (fault: NodeJS.ErrnoException, socket) => {
    handshakeFailed(options, socket, fault.code ?? 'UNKNOWN')
    socket.destroy()
  })
  turnAwayBeforeHandshake(server, options)
  return server
}

/** A handshake costs more than all that could follow. */
function turnAwayBeforeHandshake(server: tls.Server, options: ListenTcpOptions): void {
  const handshakes = server.listeners('connection') as ((socket: net.Socket) => void)[]
  server.removeAllListeners('connection')
  server.on('connection', (socket: net.Socket) => {
    if (isTurnedAway(options, () => socket.remoteAddress, 'tcp')) socket.resetAndDestroy()
    else for (const begin of handshakes) begin.call(server, socket)
  })
}

function requiresCertificate(material: TlsMaterial): boolean {
  return material.clientCa !== undefined && material.clientCertificate !== 'request'
}

/** Checked before it is used, so that nothing is half replaced. */
function contextOf(material: TlsMaterial): tls.SecureContextOptions {
  const context: tls.SecureContextOptions = {
    cert: material.cert,
    key: material.key,
    minVersion: 'TLSv1.2',
    // A resumed session would keep the client certificate of before, also after its CA is gone.
    ...(material.clientCa !== undefined && { ca: material.clientCa, secureOptions: constants.SSL_OP_NO_TICKET }),
  }
  try {
    tls.createSecureContext(context)
  } catch (error) {
    throw new SallyportError(
      'SALLYPORT_KEY_UNREADABLE',
      `the certificate and key of the TLS listener can't be used: ${whyUnreadable(error)}`,
      { cause: error },
    )
  }
  return context
}

function reloadServer(server: tls.Server, options: ListenTcpOptions, material: TlsMaterial): void {
  const asked = options.tls
  if (
    !asked ||
    (material.clientCa === undefined) !== (asked.clientCa === undefined) ||
    requiresCertificate(material) !== requiresCertificate(asked)
  ) {
    throw new SallyportError(
      'SALLYPORT_KEY_UNREADABLE',
      'whether clients need a certificate (`clientCa`) changes only with a restart',
    )
  }
  server.setSecureContext(contextOf(material))
}

function whereOf(host: string, port: number): string {
  return net.isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`
}

/** Only of a certificate that was verified. @see RFC 8705 section 3.1 */
function thumbprintOf(socket: tls.TLSSocket): string | undefined {
  if (!socket.authorized) return undefined
  const certificate = socket.getPeerX509Certificate()
  return certificate && Buffer.from(certificate.fingerprint256.replaceAll(':', ''), 'hex').toString('base64url')
}
