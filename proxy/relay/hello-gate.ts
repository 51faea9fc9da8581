/** Holds what a client sends until its ClientHello is whole and approved, for as long as it may take. */
import { ClientHelloReader, type HelloFault, type HelloInspector } from './client-hello.ts'

/** What becomes of the bytes so far. */
export type GateVerdict = 'hold' | { readonly release: Buffer } | { readonly refuse: HelloFault }

/** The gate of one tunnel. */
export class HelloGate {
  readonly #reader = new ClientHelloReader()
  readonly #judge: HelloInspector['judge']
  readonly #timer: NodeJS.Timeout

  /** `onTimeout` is called when the hello takes too long, unless the gate is closed before. */
  constructor(inspector: HelloInspector, onTimeout: () => void) {
    this.#judge = inspector.judge
    this.#timer = setTimeout(onTimeout, inspector.timeoutMs ?? 10_000)
  }

  /** Takes bytes of the client, which may be overwritten afterwards. */
  push(bytes: Buffer): GateVerdict {
    const result = this.#reader.push(bytes)
    if (result.state === 'more') return 'hold'
    this.close()
    const refuse = result.state === 'refused' ? result.reason : this.#judge(result.hello)
    return refuse === undefined ? { release: this.#reader.release() } : { refuse }
  }

  /** Stops the timer. Idempotent. */
  close(): void {
    clearTimeout(this.#timer)
  }
}
