/**
 * What relays read into. One small buffer is shared by every quiet connection and must be copied out of before the read returns;
 * a busy connection borrows a big one of its own, from a pool that is bounded, and may leave it to a pending write.
 */

/** Size of the shared buffer: a read that fills it makes a connection busy. */
export const COLD_BYTES = 64 * 1024

/** Size of a busy connection's own buffer. Half of it costs a fifth more CPU time for each byte; above it little is gained. */
export const HOT_BYTES = 1024 * 1024

/** How many busy buffers there may be: 64 MiB in all, whatever clients do. Connections that get none stay on the shared one. */
export const HOT_LIMIT = 64

/** The shared buffer. Whoever reads next overwrites it: never hand it, or a view of it, to a write. */
export const coldBuffer: Buffer = Buffer.allocUnsafeSlow(COLD_BYTES)

/** What was read, in memory of its own. */
export function copyOf(buffer: Buffer, bytes: number): Buffer {
  const copy = Buffer.allocUnsafe(bytes)
  buffer.copy(copy, 0, 0, bytes)
  return copy
}

/** Borrows a hot buffer. */
export interface HotHolder {
  /** Gives the buffer back now if it has lain idle since the last time that this was asked; says whether it did. */
  surrender(): boolean
}

/** Sizes and seams of a {@link HotBuffers}. */
export interface HotBuffersOptions {
  /** Bytes of each. */
  readonly bytes: number
  /** How many at most. */
  readonly limit: number
  /** How long a buffer stays unused before its memory is let go, in milliseconds. Default 10 000. */
  readonly keepMs?: number
}

/** At most this often does an empty pool ask its holders, so that asking costs nothing when all are truly busy. */
const RECLAIM_EVERY_MS = 100

/** A bounded pool. It only takes a buffer back from the one it was lent to, so that a fault elsewhere can't put a buffer into two hands. */
export class HotBuffers {
  readonly #options: HotBuffersOptions
  readonly #free: Buffer[] = []
  readonly #lent = new Map<Buffer, HotHolder>()
  /** The fewest that were free since the last trim: those were not needed. */
  #unneeded = 0
  #trimming: NodeJS.Timeout | undefined
  #reclaimedMs = 0
  #strays = 0

  /** An empty pool; memory is taken when first needed. */
  constructor(options: HotBuffersOptions) {
    this.#options = options
  }

  /** How many are lent at the moment. */
  get lent(): number {
    return this.#lent.size
  }

  /** How many are kept for the next one. */
  get free(): number {
    return this.#free.length
  }

  /** How many were given back by somebody who did not hold them; always 0 unless the relay is wrong. */
  get strays(): number {
    return this.#strays
  }

  /** Lends a buffer, or `undefined` when all are in use. */
  borrow(holder: HotHolder): Buffer | undefined {
    const buffer = this.#free.pop() ?? this.#grow() ?? this.#reclaim()
    if (buffer === undefined) return undefined
    if (this.#free.length < this.#unneeded) this.#unneeded = this.#free.length
    this.#lent.set(buffer, holder)
    return buffer
  }

  /** Takes a buffer back. */
  giveBack(buffer: Buffer, holder: HotHolder): void {
    if (this.#lent.get(buffer) !== holder) {
      this.#strays++
      return
    }
    this.#lent.delete(buffer)
    this.#free.push(buffer)
    if (this.#trimming === undefined) this.#trimLater()
  }

  #grow(): Buffer | undefined {
    return this.#lent.size < this.#options.limit ? Buffer.allocUnsafeSlow(this.#options.bytes) : undefined
  }

  #reclaim(): Buffer | undefined {
    const nowMs = performance.now()
    if (nowMs - this.#reclaimedMs < RECLAIM_EVERY_MS) return undefined
    this.#reclaimedMs = nowMs
    for (const holder of this.#lent.values()) holder.surrender()
    return this.#free.pop()
  }

  #trimLater(): void {
    this.#trimming = setTimeout(() => {
      this.#trimming = undefined
      this.#free.splice(0, this.#unneeded)
      this.#unneeded = this.#free.length
      if (this.#free.length > 0) this.#trimLater()
    }, this.#options.keepMs ?? 10_000).unref()
  }
}

/** The pool of this process. */
export const hotBuffers = new HotBuffers({ bytes: HOT_BYTES, limit: HOT_LIMIT })
