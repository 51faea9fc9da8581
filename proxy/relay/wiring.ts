/**
 * Joins a socket's reads and events to its owner, with one set of functions for all sockets: no closure a connection, let alone a chunk.
 * The one file that reaches into Node's sockets, where their public face has no way to read an accepted connection into a buffer of ours; what it uses
 * has been the same from Node 20 to 26, and where it is missing the socket is read through its events.
 */
import net from 'node:net'
import tls from 'node:tls'
import { coldBuffer } from './buffers.ts'

/** Who owns a socket. */
export interface SocketOwner {
  /** The socket has read so many bytes into the buffer that it was told last; says whether to read on. See {@link readNextInto}. */
  onRead(bytesRead: number): boolean
  /** A chunk of a socket that is read through its events; it is nobody else's. */
  onChunk(chunk: Buffer): void
  /** The peer's end was read. */
  onEnd(): void
  /** All that was written is in the kernel. */
  onDrain(): void
  /** A fault; {@link onClosed} follows. */
  onFault(fault: NodeJS.ErrnoException): void
  /** The handle neither reads nor writes any more. */
  onClosed(): void
}

const OWNER = Symbol('owner')
interface OwnedSocket extends net.Socket {
  [OWNER]?: SocketOwner | undefined
}

interface HandleHolder {
  _handle?: { readonly useUserBuffer?: (buffer: Buffer) => void } | null
}

let nextBuffer = coldBuffer

/** For `net.connect`: reads go to the owner, and into the shared buffer until it says otherwise. */
export const ONREAD: net.OnReadOpts = { buffer: takeBuffer, callback: onRead }

function takeBuffer(): Buffer {
  const buffer = nextBuffer
  nextBuffer = coldBuffer
  return buffer
}

/** Node's own idea of the buffer is not asked for: after `reroute` it is out of date. */
function onRead(this: OwnedSocket, bytesRead: number): boolean {
  return this[OWNER]?.onRead(bytesRead) ?? false
}

/**
 * Says where the socket whose read is being handled reads next, if not into the shared buffer: Node asks for it right after the callback, and does not say
 * for which socket. So it must be the last thing that {@link SocketOwner.onRead} does.
 */
export function readNextInto(buffer: Buffer): void {
  nextBuffer = buffer
}

/** Makes a socket read into another buffer from now on, outside of its own read. Each call leaves a few bytes with the handle. `false`: it can't be done. */
export function reroute(socket: net.Socket, buffer: Buffer): boolean {
  const handle = (socket as HandleHolder)._handle
  if (!handle?.useUserBuffer) return false
  handle.useUserBuffer(buffer)
  return true
}

/**
 * Makes an accepted connection, not yet read, read through {@link ONREAD}, as if its socket had been made with it.
 * `false` where that can't be done (TLS, bytes already buffered): the socket is as it was.
 */
export function readThroughOnread(socket: net.Socket): boolean {
  const handle = (socket as HandleHolder)._handle
  if (FIELDS === undefined || socket instanceof tls.TLSSocket || socket.destroyed || socket.readableLength > 0)
    return false
  if (!handle || typeof handle.useUserBuffer !== 'function') return false
  handle.useUserBuffer(coldBuffer)
  const fields = socket as unknown as Record<symbol, unknown>
  fields[FIELDS.buffer] = coldBuffer
  fields[FIELDS.nextBuffer] = takeBuffer
  fields[FIELDS.callback] = onRead
  return true
}

/** Where a socket keeps its `onread`, read off one that was made with it; `undefined` on a Node that keeps it elsewhere. */
const FIELDS = findFields()

function findFields(): { readonly buffer: symbol; readonly nextBuffer: symbol; readonly callback: symbol } | undefined {
  const sample = new net.Socket({ onread: ONREAD })
  const symbols = Object.getOwnPropertySymbols(sample)
  const holding = (value: unknown): symbol | undefined =>
    symbols.find((symbol) => (sample as unknown as Record<symbol, unknown>)[symbol] === value)
  const nextBuffer = holding(takeBuffer)
  const callback = holding(onRead)
  const buffer = symbols.find((symbol) => symbol.description === 'kBuffer')
  if (buffer === undefined || nextBuffer === undefined || callback === undefined) return undefined
  return { buffer, nextBuffer, callback }
}

/**
 * Gives a socket's reads and events to its owner, until it is closed. A closed socket stays in memory for long: each has a function that V8 puts among old
 * objects from the start (`onwrite`, until the making of it is optimized). What it refers to would stay too, and be copied from one generation to the next.
 */
export function own(socket: net.Socket, owner: SocketOwner): void {
  ;(socket as OwnedSocket)[OWNER] = owner
  socket.on('end', onEnd).on('drain', onDrain).on('error', onError).on('close', onClose)
}

/** For a socket that is not read through {@link ONREAD}: its chunks go to the owner; it stays paused. */
export function ownChunks(socket: net.Socket): void {
  socket.pause()
  socket.on('data', onData)
}

/** Takes back what {@link own} and {@link ownChunks} did, but for faults, which still end nothing else, and `onread`. */
export function disown(socket: net.Socket): void {
  socket.off('data', onData).off('end', onEnd).off('drain', onDrain).off('close', onClose)
}

function onData(this: OwnedSocket, chunk: Buffer): void {
  this[OWNER]?.onChunk(chunk)
}

function onEnd(this: OwnedSocket): void {
  this[OWNER]?.onEnd()
}

function onDrain(this: OwnedSocket): void {
  this[OWNER]?.onDrain()
}

function onError(this: OwnedSocket, fault: NodeJS.ErrnoException): void {
  this[OWNER]?.onFault(fault)
}

/** What is closed is let go: see {@link own}. */
function onClose(this: OwnedSocket): void {
  const owner = this[OWNER]
  this[OWNER] = undefined
  owner?.onClosed()
}
