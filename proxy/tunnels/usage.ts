/**
 * What was counted against limits in this process and is yet to be told to the other processes of the same gateway: summed up by counter, so that it stays
 * small. What is near a limit is told soon; all else may wait, and cost less.
 */

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
  /** Processes that may each use something up that the others do not know of yet. */
  readonly processes: number
  #soon = new Map<string, Growing>()
  #later = new Map<string, Growing>()
  #tunnels = 0
  readonly #onFirst: (isSoon: boolean) => void

  /** `onFirst` is called when there is something to tell, soon or later, after there was nothing. */
  constructor(processes: number, onFirst: (isSoon: boolean) => void) {
    this.processes = processes
    this.#onFirst = onFirst
  }

  /** Tunnels more, or fewer, of all sandboxes. */
  get tunnels(): number {
    return this.#tunnels
  }

  /** A place under the limits was given. */
  opened(counter: CounterName): UsageChange {
    const change = this.#changeOf(counter)
    change.tunnels++
    change.opened++
    if (!counter.isTenant) this.#tunnels++
    return change
  }

  /** A place was given back. */
  released(counter: CounterName): UsageChange {
    const change = this.#changeOf(counter)
    change.tunnels--
    if (!counter.isTenant) this.#tunnels--
    return change
  }

  /** Bytes of the day. */
  carried(counter: CounterName, bytes: number): UsageChange {
    const change = this.#changeOf(counter)
    change.bytes += bytes
    return change
  }

  /** Bytes as they pass, where there is a limit per second. */
  paced(counter: CounterName, bytes: number): void {
    this.#changeOf(counter).paced += bytes
    this.hurry(counter.key)
  }

  /** What another process told, to be told on soon. */
  add(change: UsageChange): void {
    const sum = this.#changeOf(change)
    sum.tunnels += change.tunnels
    sum.opened += change.opened
    sum.bytes += change.bytes
    sum.paced += change.paced
    this.hurry(change.key)
  }

  /** What is untold of a counter. */
  of(key: string): UsageChange | undefined {
    return this.#soon.get(key) ?? this.#later.get(key)
  }

  /** This can't wait. */
  hurry(key: string): void {
    const change = this.#later.get(key)
    if (change === undefined) return
    this.#later.delete(key)
    this.#soon.set(key, change)
    if (this.#soon.size === 1) this.#onFirst(true)
  }

  /** Nothing can wait. */
  hurryAll(): void {
    for (const key of [...this.#later.keys()]) this.hurry(key)
  }

  /** What can't wait, or all of it; it counts as told from then on. */
  take(isAll: boolean): readonly UsageChange[] {
    const taken = [...this.#soon.values(), ...(isAll ? this.#later.values() : [])]
    this.#soon = new Map()
    if (isAll) this.#later = new Map()
    for (const { isTenant, tunnels } of taken) if (!isTenant) this.#tunnels -= tunnels
    return taken
  }

  #changeOf({ key, isTenant }: CounterName): Growing {
    const known = this.#soon.get(key) ?? this.#later.get(key)
    if (known !== undefined) return known
    const fresh = { key, isTenant, tunnels: 0, opened: 0, bytes: 0, paced: 0 }
    this.#later.set(key, fresh)
    if (this.#later.size === 1) this.#onFirst(false)
    return fresh
  }
}
