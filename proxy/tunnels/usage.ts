/** What was counted against limits in this process and is yet to be told to the other processes of the same gateway: summed up by counter, so that it stays small. */

/** What one counter was used for since it was told last. */
export interface UsageChange {
  /** Names the sandbox or the tenant, as `limits.ts` does. */
  readonly key: string
  readonly isTenant: boolean
  /** Tunnels more, or fewer. */
  readonly tunnels: number
  /** Against the new ones per second; a part of one in what a beginner is told. */
  readonly opened: number
  /** Against the bytes per day. */
  readonly bytes: number
  /** Against the bytes per second. */
  readonly paced: number
}

type Growing = { -readonly [Field in keyof UsageChange]: UsageChange[Field] }
type CounterName = Pick<UsageChange, 'key' | 'isTenant'>

/** Collects until it is taken. It never holds more entries than there are counters in use. */
export class UntoldUsage {
  #changes = new Map<string, Growing>()
  readonly #onFirst: () => void

  /** `onFirst` is called when there is something to tell, after there was nothing. */
  constructor(onFirst: () => void) {
    this.#onFirst = onFirst
  }

  /** A place under the limits was given. */
  opened(counter: CounterName): void {
    const change = this.#changeOf(counter)
    change.tunnels++
    change.opened++
  }

  /** A place was given back. */
  released(counter: CounterName): void {
    this.#changeOf(counter).tunnels--
  }

  /** Bytes of the day. */
  carried(counter: CounterName, bytes: number): void {
    if (bytes > 0) this.#changeOf(counter).bytes += bytes
  }

  /** Bytes as they pass, where there is a limit per second. */
  paced(counter: CounterName, bytes: number): void {
    if (bytes > 0) this.#changeOf(counter).paced += bytes
  }

  /** What another process told, to be told on. */
  add(change: UsageChange): void {
    const sum = this.#changeOf(change)
    sum.tunnels += change.tunnels
    sum.opened += change.opened
    sum.bytes += change.bytes
    sum.paced += change.paced
  }

  /** All of it; it counts as told from then on. */
  take(): readonly UsageChange[] {
    const taken = [...this.#changes.values()]
    this.#changes = new Map()
    return taken
  }

  #changeOf({ key, isTenant }: CounterName): Growing {
    const known = this.#changes.get(key)
    if (known !== undefined) return known
    const fresh = { key, isTenant, tunnels: 0, opened: 0, bytes: 0, paced: 0 }
    this.#changes.set(key, fresh)
    if (this.#changes.size === 1) this.#onFirst()
    return fresh
  }
}
