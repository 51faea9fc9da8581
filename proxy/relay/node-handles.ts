/**
 * Node's own stream handles, as they are below `net.Socket`, which costs a tunnel more than all else that Node does for it. The one file that reaches into Node.
 *
 * `process.binding` is meant for Node itself (DEP0111, deprecated in documentation only); what is used of it has been the same from Node 20 to 26.
 * Where it is missing, refused (Node's permission model) or of another shape, {@link hasHandles} is false, and connections go through `net.Socket`:
 * dearer, to the same effect.
 */
import type net from 'node:net'
import { getSystemErrorName } from 'node:util'

/** A TCP connection or unix socket. Numbers that are returned are 0, or a fault for {@link faultName}. In the functions that it calls it is `this`. */
export interface StreamHandle {
  /** Whose it is. (`owner` is Node's.) */
  wire?: object | undefined
  /** Called when something was read, see {@link lastRead}; what it returns, unless undefined, is read into from then on. */
  onread: (this: StreamHandle) => Buffer | undefined
  /** Reads go into this buffer, which the caller must keep alive. Each call leaves a few bytes with the handle. */
  useUserBuffer(buffer: Buffer): void
  readStart(): number
  readStop(): number
  /** Sends what the kernel takes at once. If that is not all, see {@link isWriteUnderway}, the request belongs to this write until its `oncomplete`. */
  writeBuffer(request: HandleRequest, bytes: Buffer): number
  /** Sends the end, behind all pending writes. */
  shutdown(request: HandleRequest): number
  /** `closed` runs in a later turn, after the `oncomplete` of all requests. */
  close(closed?: (this: StreamHandle) => void): void
  /** TCP only: closes with RST. Not after a `shutdown`: then it is a fault, and the handle can't be closed any more either. */
  reset?(closed: (this: StreamHandle) => void): number
  /** TCP only. */
  getpeername?(out: HandlePeer): number
  /** TCP only. */
  setNoDelay?(isOn: boolean): number
}

/** A TCP handle that is to be connected. */
export interface ConnectingHandle extends StreamHandle {
  /** To an IPv4 literal. */
  connect(request: HandleRequest, address: string, port: number): number
  /** To an IPv6 literal. */
  connect6(request: HandleRequest, address: string, port: number): number
}

/** A write, a shutdown or a connect that is under way; `this` of its function. */
export interface HandleRequest {
  oncomplete?: (this: HandleRequest, status: number) => void
  /** Whose it is. */
  wire?: object
  /** What is being written, which must be kept alive. */
  bytes?: Buffer
}

/** What {@link StreamHandle.getpeername} fills in. */
export interface HandlePeer {
  address?: string
  port?: number
}

interface Bindings {
  readonly TCP: new (type: number) => ConnectingHandle
  readonly TCPConnectWrap: new () => HandleRequest
  readonly constants: { readonly SOCKET: number }
  readonly WriteWrap: new () => HandleRequest
  readonly ShutdownWrap: new () => HandleRequest
  readonly streamBaseState: Int32Array
  readonly kReadBytesOrError: number
  readonly kLastWriteWasAsync: number
}

const STREAM_METHODS = ['useUserBuffer', 'readStart', 'readStop', 'writeBuffer', 'shutdown', 'close'] as const
const TCP_METHODS = [...STREAM_METHODS, 'reset', 'getpeername', 'setNoDelay', 'connect', 'connect6'] as const

const found = findBindings()

/** Whether there is something to reach into. All else here throws a `TypeError` where there is not. */
export const hasHandles: boolean = found !== undefined

/** An unconnected one. */
export function createTcp(): ConnectingHandle {
  const { TCP, constants } = bindings()
  return new TCP(constants.SOCKET)
}

/** For `connect` and `connect6`. */
export function createConnectRequest(): HandleRequest {
  return new (bindings().TCPConnectWrap)()
}

/** For `writeBuffer`. */
export function createWriteRequest(): HandleRequest {
  return new (bindings().WriteWrap)()
}

/** For `shutdown`. */
export function createShutdownRequest(): HandleRequest {
  return new (bindings().ShutdownWrap)()
}

/** Within `onread`: how many bytes were read; below 0 a fault, or the end (`EOF`). */
export function lastRead(): number {
  const { streamBaseState, kReadBytesOrError } = bindings()
  return streamBaseState[kReadBytesOrError] ?? 0
}

/** Right after `writeBuffer`: whether it is still to be completed. */
export function isWriteUnderway(): boolean {
  const { streamBaseState, kLastWriteWasAsync } = bindings()
  return streamBaseState[kLastWriteWasAsync] !== 0
}

/** The system's name of a fault that a handle returned, such as `ECONNRESET`. */
export function faultName(fault: number): string {
  return fault < 0 ? getSystemErrorName(fault) : 'UNKNOWN'
}

/**
 * Has a listening server hand over the handle of each connection, instead of a socket that it makes for it. `false`: it goes on making sockets.
 * A server so taken over knows nothing of its connections.
 */
export function takeConnections(server: net.Server, accepted: (handle: StreamHandle) => void): boolean {
  const listening = (server as { _handle?: { onconnection?: unknown } | null })._handle
  if (!hasHandles || typeof listening?.onconnection !== 'function' || !hasAll(listening, STREAM_METHODS)) return false
  listening.onconnection = (fault: number, handle: StreamHandle | undefined): void => {
    if (fault === 0 && handle !== undefined) accepted(handle)
    else server.emit('error', Object.assign(new Error('accept failed'), { code: faultName(fault) }))
  }
  return true
}

/** Who is at the other end; empty for unix sockets and for a peer that has left. */
export function peerOf(handle: StreamHandle): HandlePeer {
  const peer: HandlePeer = {}
  handle.getpeername?.(peer)
  return peer
}

/** Gives up a connection that nothing was made of; with RST where there is such a thing. */
export function resetUnread(handle: StreamHandle): void {
  if (handle.reset === undefined || handle.reset(nothing) !== 0) handle.close()
}

function nothing(): void {
  return undefined
}

function bindings(): Bindings {
  if (found === undefined) throw new TypeError('this Node has no handles to reach into')
  return found
}

function findBindings(): Bindings | undefined {
  try {
    const { binding } = process as unknown as { readonly binding: (name: string) => object }
    const all = { ...binding('tcp_wrap'), ...binding('stream_wrap') } as Bindings
    const isComplete =
      [all.TCPConnectWrap, all.WriteWrap, all.ShutdownWrap].every((wrap) => typeof wrap === 'function') &&
      hasAll(all.TCP.prototype as object, TCP_METHODS) &&
      ArrayBuffer.isView(all.streamBaseState) &&
      [all.constants.SOCKET, all.kReadBytesOrError, all.kLastWriteWasAsync].every(Number.isSafeInteger)
    return isComplete ? all : undefined
  } catch {
    return undefined
  }
}

function hasAll(object: object, methods: readonly string[]): boolean {
  return methods.every((method) => typeof (object as Record<string, unknown>)[method] === 'function')
}
