/** Lets the thread that serves connections go first. */
import { setPriority } from 'node:os'

/** Makes the calling thread, and it alone, as nice as that. Only on Linux, where priorities are a thread's own; elsewhere nothing happens. */
export function giveWay(niceness: number): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(0, niceness)
  } catch {
    // As fast as all others, then.
  }
}
