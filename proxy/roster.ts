/**
 * Who is there at the moment, of a crowd that comes and goes all the time. What a `Set` would say, without its price.
 *
 * V8 makes a `Set` or `Map` anew after so many changes, and links each old table to the next. Once one of them has outlived a few collections, all those after
 * it live on with it, and with them whatever was in them: for connections that was every second one, copied twice and kept until the next full collection.
 */

/** Can be in one roster at a time. */
export interface Member {
  /** Its place in the roster, which alone may change it; begin with -1. */
  rosterPlace: number
}

/** In no order. */
export class Roster<T extends Member> {
  readonly #members: T[] = []

  /** How many are there. */
  get size(): number {
    return this.#members.length
  }

  /** It has come; it must not be in any roster. */
  add(member: T): void {
    member.rosterPlace = this.#members.length
    this.#members.push(member)
  }

  /** It has left; whether it was there. Idempotent. The last one takes its place. */
  remove(member: T): boolean {
    const place = member.rosterPlace
    if (this.#members[place] !== member) return false
    const last = this.#members.pop()
    if (last !== undefined && last !== member) {
      this.#members[place] = last
      last.rosterPlace = place
    }
    member.rosterPlace = -1
    return true
  }

  /** All have left. */
  clear(): void {
    for (const member of this.#members) member.rosterPlace = -1
    this.#members.length = 0
  }

  /** Visits all who were there at the start and still are, from the last to the first, so that anybody may leave meanwhile. One may be visited twice then. */
  forEach(visit: (member: T) => void): void {
    for (let place = this.#members.length - 1; place >= 0; place--) {
      const member = this.#members[place]
      if (member !== undefined) visit(member)
    }
  }

  /** All who are there, as they are now. */
  list(): T[] {
    return [...this.#members]
  }
}
