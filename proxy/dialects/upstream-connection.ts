/**
 * The connection to an origin that plain HTTP requests of one client connection may share, and how `node:http` is made to use it and no other.
 * It never dials: a socket comes from `dialPlain`, under a permit.
 */
import type http from 'node:http'
import type net from 'node:net'
import type { Duplex } from 'node:stream'

import type { Authorized } from '../request.ts'
import type { DialledPlain } from './forward.ts'
import { hostField } from './http-fields.ts'
import nodeHttp from '../node-http.ts'

/** An open connection to an origin, owned by one client connection. */
export interface UpstreamConnection {
  /** Unique; the only name under which the agent knows the socket, so that no other client's request can get it. */
  readonly id: string
  readonly socket: net.Socket
  readonly dialled: string
  /** `host[:port]` of the destination. */
  readonly hostField: string
  readonly upstreamProxy: DialledPlain['upstreamProxy']
  /** It has carried a request before. */
  used: boolean
  /** For whom it was used last; between requests it stays open only while this holds. */
  permission: Authorized
}

let lastId = 0

/** Names a connection that was just dialled for `authorized`. */
export function ownConnection(authorized: Authorized, dialled: DialledPlain): UpstreamConnection {
  lastId += 1
  const { socket, upstreamProxy } = dialled
  const host = hostField(authorized.destination)
  return {
    id: String(lastId),
    socket,
    dialled: dialled.dialled,
    hostField: host,
    upstreamProxy,
    used: false,
    permission: authorized,
  }
}

/**
 * May this request go over a connection that is already open? Only to the same host and port, and only if the address at its other end is one that was
 * checked for this very request. (A permit has no addresses only where the operator lets an upstream proxy resolve names.)
 */
export function mayReuse({ socket, hostField: host, dialled }: UpstreamConnection, authorized: Authorized): boolean {
  if (socket.destroyed || !socket.writable || !socket.readable || host !== hostField(authorized.destination))
    return false
  const { addresses, destination } = authorized.permit
  if (addresses.length === 0) return true
  return addresses.some(({ text }) =>
    [text, `${text}:${destination.port}`, `[${text}]:${destination.port}`].includes(dialled),
  )
}

/** Hands to `node:http` the connection that a request names, keeps it between requests, and opens none. */
export class UpstreamAgent extends nodeHttp.Agent {
  readonly #fresh = new Map<string, net.Socket>()

  /** One for all clients: the sockets are told apart by {@link UpstreamConnection.id}. */
  constructor() {
    super({ keepAlive: true, maxFreeSockets: 1 })
  }

  /** The request options that make a request use `connection`. */
  optionsFor(connection: UpstreamConnection): http.RequestOptions {
    if (!connection.used) this.#fresh.set(connection.id, connection.socket)
    connection.used = true
    return { agent: this, host: connection.id, port: 0 }
  }

  /** By the id alone. */
  override getName(options?: { readonly host?: string | undefined }): string {
    return options?.host ?? ''
  }

  /** Gives the dialled socket, once; asked again for the same id, it has been closed in the meantime. */
  override createConnection(
    options: http.ClientRequestArgs,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): Duplex | null {
    const id = options.host ?? ''
    const socket = this.#fresh.get(id)
    this.#fresh.delete(id)
    if (socket !== undefined) return socket
    // Typed as if a stream came with an error.
    const fail = callback as ((error: Error) => void) | undefined
    fail?.(Object.assign(new Error('the connection to the origin was closed'), { code: 'ECONNRESET' }))
    this.#forget(id)
    return null
  }

  /** What an origin says without being asked must not become the answer to the next request. */
  override keepSocketAlive(socket: Duplex): boolean {
    // Typed as void, but documented to answer whether the socket may be kept.
    const mayKeep: (socket: Duplex) => unknown = super.keepSocketAlive.bind(this)
    socket.on('data', destroyTalker)
    socket.resume()
    return mayKeep(socket) !== false
  }

  /** Undoes {@link keepSocketAlive}. */
  override reuseSocket(socket: Duplex, request: http.ClientRequest): void {
    socket.removeListener('data', destroyTalker)
    super.reuseSocket(socket, request)
  }

  /** Node leaves an empty list under the name of a socket that could not be created. */
  #forget(id: string): void {
    const lists: NodeJS.Dict<net.Socket[]> = this.sockets
    if (lists[id]?.length === 0) Reflect.deleteProperty(lists, id)
  }
}

function destroyTalker(this: Duplex): void {
  this.destroy()
}
