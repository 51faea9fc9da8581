/** Where clients come in: TCP ports with several listeners each, TLS over them, and unix sockets. */
import type { Identity } from '../tokens/identity.ts'
import type { ClientInfo } from '../request.ts'
import type { Side } from './side.ts'

/** Certificates of a TLS listener, as PEM. */
export interface TlsMaterial {
  readonly cert: string | Buffer
  readonly key: string | Buffer
  /** With it a client must present a certificate that it issued. */
  readonly clientCa?: string | Buffer
}

/** What every listener takes. */
export interface ListenCommon {
  /** The identity that every connection of this listener carries. */
  readonly bound?: Identity
  /** A connection, not yet read. */
  readonly onSide: (side: Side, client: ClientInfo) => void
  /** Faults of a single connection or of accepting (a failed TLS handshake, no descriptors left); the listener goes on. */
  readonly onFault?: (fault: ListenFault) => void
}

/** What went wrong while listening, in a stable word; `code` is the system's or OpenSSL's. */
export interface ListenFault {
  readonly kind: 'accept' | 'tls_handshake'
  readonly code: string
}

/** A TCP port. */
export interface ListenTcpOptions extends ListenCommon {
  /** An address to bind. */
  readonly host: string
  /** 0: a free one. */
  readonly port: number
  /** How many listeners share the port in this process, so that a busy event loop still accepts several connections a turn. Default 8; 1 where the system has no `SO_REUSEPORT`. */
  readonly listeners?: number
  /** TLS to the proxy. */
  readonly tls?: TlsMaterial
  /** How long a TLS handshake may take, in milliseconds. Default 10 000. */
  readonly handshakeTimeoutMs?: number
}

/** A unix socket. */
export interface ListenUnixOptions extends ListenCommon {
  /** At most 103 bytes. A stale socket that nobody answers on is removed; anything else at that path is a fault. */
  readonly path: string
  /** Permission bits of the socket file. Default 0o600. */
  readonly mode?: number
}

/** An open listener. */
export interface Listener {
  /** The bound address in canonical form, or `unix`. */
  readonly address: string
  /** The bound port; 0 for a unix socket. */
  readonly port: number
  /** New certificates for connections from now on; a fault in them is thrown and the old ones stay. No-op without TLS. */
  reload(material: TlsMaterial): void
  /** Stops accepting; open connections go on. Idempotent. */
  close(): Promise<void>
}

/**
 * Opens a TCP port.
 * @throws SallyportError `SALLYPORT_LISTEN_FAILED`, with one line that says why
 */
export function listenTcp(_options: ListenTcpOptions): Promise<Listener> {
  return Promise.reject(new Error('not built yet'))
}

/**
 * Opens a unix socket.
 * @throws SallyportError `SALLYPORT_LISTEN_FAILED`, with one line that says why
 */
export function listenUnix(_options: ListenUnixOptions): Promise<Listener> {
  return Promise.reject(new Error('not built yet'))
}
