/** The input that a fuzzing thread is at, where its parent can read it when the thread no longer answers. */

/** A count of inputs, and the bytes of the last one. */
export class SharedInput {
  readonly memory: SharedArrayBuffer
  readonly #words: Int32Array
  readonly #bytes: Uint8Array

  constructor(memory: SharedArrayBuffer = new SharedArrayBuffer(8 + 64 * 1024)) {
    this.memory = memory
    this.#words = new Int32Array(memory, 0, 2)
    this.#bytes = new Uint8Array(memory, 8)
  }

  /** How many there were; changes as long as the thread gets on. */
  get count(): number {
    return Atomics.load(this.#words, 0)
  }

  set(input: Buffer): void {
    Atomics.store(this.#words, 1, input.length)
    this.#bytes.set(input.subarray(0, this.#bytes.length))
    Atomics.add(this.#words, 0, 1)
  }

  get(): Buffer {
    return Buffer.from(this.#bytes.slice(0, Atomics.load(this.#words, 1)))
  }
}
