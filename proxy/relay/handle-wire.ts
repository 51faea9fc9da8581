/** A TCP connection or unix socket by Node's own handle: no `net.Socket`, and no event, tick or closure for what happens on it. */
import net from 'node:net'
import { coldBuffer, copyOf } from './buffers.ts'
import {
  createShutdownRequest,
  createWriteRequest,
  faultName,
  type HandlePeer,
  type HandleRequest,
  isWriteUnderway,
  lastRead,
  peerOf,
  type StreamHandle,
} from './node-handles.ts'
import type { Wire, WireOwner } from './wire.ts'

/** The wire of a connected handle, which is its own from here on. */
export class HandleWire implements Wire {
  readonly #handle: StreamHandle
  #owner: WireOwner | undefined
  /** What the handle reads into, kept alive. */
  #buffer: Buffer = coldBuffer
  #isInRead = false
  #reads = false
  /** Writes that are under way. */
  #pending = 0
  /** The peer's end was read. */
  #isEnded = false
  /** Our end was sent, or waits behind pending writes. */
  #isFinished = false
  /** Our end is out. */
  #isShut = false
  #destroyed = false

  /** It must not have been read. */
  constructor(handle: StreamHandle) {
    this.#handle = handle
    handle.wire = this
    handle.onread = onRead
    handle.useUserBuffer(coldBuffer)
  }

  get destroyed(): boolean {
    return this.#destroyed
  }

  get peer(): HandlePeer {
    return this.#destroyed ? {} : peerOf(this.#handle)
  }

  own(owner: WireOwner): void {
    this.#owner = owner
  }

  read(): void {
    if (this.#reads || this.#isEnded || this.#destroyed) return
    this.#reads = true
    const fault = this.#handle.readStart()
    if (fault !== 0) this.#fail(fault)
  }

  send(bytes: Buffer): boolean {
    if (this.#destroyed || this.#isFinished) return true
    const request = (spareRequest ??= createWriteRequest())
    const fault = this.#handle.writeBuffer(request, bytes)
    if (fault !== 0) this.#fail(fault)
    else if (isWriteUnderway()) {
      spareRequest = undefined
      request.wire = this
      request.bytes = bytes
      request.oncomplete = onWritten
      this.#pending++
    }
    return this.#pending === 0
  }

  end(): void {
    if (this.#isFinished || this.#destroyed) return
    this.#isFinished = true
    const request = createShutdownRequest()
    request.wire = this
    request.oncomplete = onShut
    const fault = this.#handle.shutdown(request)
    if (fault !== 0) this.shut(fault)
  }

  finish(): void {
    // The peer has ended, and the kernel has all: closing sends the same end.
    if (this.#isEnded && this.#pending === 0) this.destroy()
    else this.end()
  }

  destroy(): void {
    if (this.#destroyed) return
    this.#destroyed = true
    this.#handle.close(onClosed)
  }

  abort(): void {
    if (this.#destroyed) return
    // After an end it could not be: see `reset`.
    if (this.#isFinished || this.#handle.reset === undefined) {
      this.destroy()
      return
    }
    this.#destroyed = true
    this.#handle.reset(onClosed)
  }

  readInto(buffer: Buffer): boolean {
    if (buffer === this.#buffer) return true
    this.#buffer = buffer
    // Within a read its answer says the same, and leaves nothing behind.
    if (!this.#isInRead) this.#handle.useUserBuffer(buffer)
    return true
  }

  toStream(): net.Socket {
    this.#owner = undefined
    this.#handle.wire = undefined
    this.#destroyed = true
    const options = {
      handle: this.#handle,
      manualStart: true,
      allowHalfOpen: true,
      // A handle that has read into a buffer once always does.
      onread: { buffer: coldBuffer, callback: pushCopy },
    }
    const socket = new net.Socket(options as object).on('error', () => undefined)
    if (this.#isEnded) socket.push(null)
    return socket
  }

  /** Something was read: the buffer for what comes next, if it is another. For the handle alone. */
  gotRead(bytesRead: number): Buffer | undefined {
    if (bytesRead <= 0) {
      if (bytesRead < 0) this.#stop(bytesRead)
      return undefined
    }
    const before = this.#buffer
    this.#isInRead = true
    const goesOn = this.#owner?.onRead(bytesRead) === true
    this.#isInRead = false
    if (!goesOn) {
      this.#reads = false
      if (!this.#destroyed) this.#handle.readStop()
    }
    return this.#buffer === before ? undefined : this.#buffer
  }

  /** A write is through. For the handle alone. */
  written(status: number): void {
    this.#pending--
    if (this.#destroyed) return
    if (status !== 0) this.#fail(status)
    else if (this.#pending === 0) this.#owner?.onDrain()
  }

  /** The end is out. For the handle alone. */
  shut(status: number): void {
    if (this.#destroyed) return
    // A peer that has left needs no end any more.
    if (status !== 0 && faultName(status) !== 'ENOTCONN') {
      this.#fail(status)
      return
    }
    this.#isShut = true
    if (this.#isEnded) this.destroy()
  }

  /** The handle is no more. For the handle alone. */
  closed(): void {
    const owner = this.#owner
    this.#owner = undefined
    owner?.onClosed()
  }

  #stop(status: number): void {
    this.#reads = false
    if (faultName(status) !== 'EOF') {
      this.#fail(status)
      return
    }
    this.#isEnded = true
    this.#owner?.onEnd()
    if (this.#isShut) this.destroy()
  }

  #fail(fault: number): void {
    if (this.#destroyed) return
    this.#owner?.onFault(faultName(fault))
    this.destroy()
  }
}

/** One that no write has taken: a write that is done at once leaves it as it was. */
let spareRequest: HandleRequest | undefined

function onRead(this: StreamHandle): Buffer | undefined {
  return (this.wire as HandleWire | undefined)?.gotRead(lastRead())
}

function onWritten(this: HandleRequest, status: number): void {
  ;(this.wire as HandleWire).written(status)
}

function onShut(this: HandleRequest, status: number): void {
  ;(this.wire as HandleWire).shut(status)
}

function onClosed(this: StreamHandle): void {
  const wire = this.wire as HandleWire | undefined
  this.wire = undefined
  wire?.closed()
}

function pushCopy(this: net.Socket, bytesRead: number): boolean {
  return this.push(copyOf(coldBuffer, bytesRead))
}
