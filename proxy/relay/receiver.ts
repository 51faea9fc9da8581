/** What a side tells whoever relays it. */
import type { Side } from './side.ts'

/** Gets a side's bytes and events once it is relayed. One object for all sides that it serves. */
export interface Receiver {
  /**
   * Bytes came. After `true` they are gone when this returns; after `false` they stay until {@link Side.proceed} is called, and no more come before;
   * after `held` they are gone, and no more come before it either.
   */
  received(side: Side, bytes: Buffer): boolean | 'held'
  /** The peer has sent its end. */
  ended(side: Side): void
  /** All that {@link Side.send} was given is in the kernel. Also comes when nobody waits for it. */
  drained(side: Side): void
  /** The socket is closed; its pending writes are void. `fault` is the system's code if it was one. */
  closed(side: Side, fault: string | undefined): void
}
