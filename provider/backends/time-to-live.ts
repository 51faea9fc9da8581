/** A time-out of any length, by the wall clock: a machine that slept has not stopped the time of its sandboxes. */

/** Node's timers end at 2^31 ms; and a clock that jumps is noticed within this. */
const LONGEST_MS = 10_000

/** Calls `action` once, after `milliseconds`, unless cancelled. Does not keep the process alive. */
export function afterMs(milliseconds: number, action: () => void): { readonly cancel: () => void } {
  const atMs = Date.now() + milliseconds
  let timer: NodeJS.Timeout | undefined
  const look = (): void => {
    const left = atMs - Date.now()
    if (left <= 0) {
      action()
      return
    }
    timer = setTimeout(look, Math.min(left, LONGEST_MS))
    timer.unref()
  }
  look()
  return { cancel: () => clearTimeout(timer) }
}
