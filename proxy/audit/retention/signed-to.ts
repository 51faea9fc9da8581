/** Waits until all lines that are in the log now are covered by a signature. */
import { parseLine } from '../match.ts'
import { lastSeq } from '../sinks/log-end.ts'

/** Is told of each checkpoint of the log. */
export class SignedTo {
  readonly #folder: string
  readonly #instance: string
  readonly #withinMs: number
  #seq = 0
  readonly #waiting = new Set<() => void>()

  constructor(log: { readonly folder: string; readonly instance: string; readonly withinMs: number }) {
    this.#folder = log.folder
    this.#instance = log.instance
    this.#withinMs = log.withinMs
  }

  /** A checkpoint line is in the file. */
  note(line: string): void {
    this.#seq = parseLine(line)?.seq ?? this.#seq
    for (const look of this.#waiting) look()
  }

  /** `false` when it can't be known, or not in time; also when `signal` aborts. */
  async reached(signal: AbortSignal): Promise<boolean> {
    const wanted = await lastSeq(this.#folder, this.#instance)
    if (wanted === undefined) return false
    if (this.#seq >= wanted) return true
    return new Promise((resolve) => {
      const end = (isSigned: boolean): void => {
        clearTimeout(limit)
        this.#waiting.delete(look)
        signal.removeEventListener('abort', stop)
        resolve(isSigned)
      }
      const look = (): void => {
        if (this.#seq >= wanted) end(true)
      }
      const stop = (): void => end(false)
      const limit = setTimeout(stop, this.#withinMs).unref()
      this.#waiting.add(look)
      signal.addEventListener('abort', stop, { once: true })
      if (signal.aborted) stop()
    })
  }
}
