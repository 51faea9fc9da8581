/** Chains through the operator's upstream proxy: CONNECT, or absolute-form for plain HTTP where the upstream resolves names. */
import type net from 'node:net'
import type tls from 'node:tls'
import type { IpAddress, Permit } from '../../policies/index.ts'
import type { AttachableSide, DialFailure, DialOptions, NewSide } from './dial.ts'
import type { Resolver } from './resolver.ts'

/** What the CONNECT exchange needs of a relay side. */
export interface ReadableSide extends AttachableSide {
  read(): Promise<Buffer | null>
  unread(bytes: Buffer): void
  write(bytes: Buffer): unknown
  destroy(): void
}

/** An upstream proxy of the operator's. The credentials inside can't be printed. */
export interface UpstreamOptions {
  /** `http://host:port` or `https://host:port`; user information in it counts as credentials. */
  readonly url: string
  /** `user:password`; wins over the URL's. */
  readonly credentials?: string
  /**
   * Who resolves names. `here` (the default): the upstream is asked for the very address that was judged. `upstream`: it is asked for the name, and
   * then nothing here knows where the connection ends up: private and metadata addresses are the upstream's to refuse.
   */
  readonly resolve?: 'here' | 'upstream'
  /** More authorities for an `https:` upstream, PEM; the system's by default. */
  readonly ca?: string
  /** For the upstream's own name. */
  readonly resolver: Resolver
}

/** How a plain HTTP request is written to what {@link Upstream.forward} opened. */
export type RequestForm =
  | { readonly kind: 'origin' }
  | { readonly kind: 'absolute'; readonly proxyAuthorization: string | undefined }

/** A failed attempt; `upstreamStatus` is what the upstream answered, for the log. */
export interface UpstreamFailure extends DialFailure {
  readonly upstreamStatus?: number
}

/** A connection through the upstream. */
export interface ThroughUpstream<S> {
  readonly ok: true
  readonly socket: net.Socket
  readonly side: S
  /** The address the upstream was asked for; `undefined` when it resolves names. */
  readonly address: IpAddress | undefined
  readonly connectMs: number
}

/** The way out when `network.upstream` is set. */
export interface Upstream {
  readonly resolve: 'here' | 'upstream'
  /** `host:port`, without credentials. */
  readonly text: string
  /** A tunnel by CONNECT. Bytes that came right behind the reply are the side's next `read()`. */
  connect<S extends ReadableSide>(
    permit: Permit,
    options: DialOptions & { readonly makeSide: () => NewSide<S>; readonly adopt: (socket: tls.TLSSocket) => S },
  ): Promise<ThroughUpstream<S> | UpstreamFailure>
  /** A socket for one client's plain HTTP requests to the permit's destination, and the form in which they must be written. */
  forward(permit: Permit, options: DialOptions): Promise<(ThroughUpstream<undefined> & { readonly form: RequestForm }) | UpstreamFailure>
}

/** @throws TypeError for a URL or credentials that can't be used; the message holds neither user nor password */
export function createUpstream(_options: UpstreamOptions): Upstream {
  throw new Error('not built yet')
}
