/** Keeps the SDK from keeping: it adds all of a command's output up for a result of its own, without bound. */
import type { CommandHandle } from 'e2b'

/** From now on it adds nothing up. Where a later SDK has other fields, output is counted twice and nothing else changes. */
export function forgetOutput(handle: CommandHandle): void {
  for (const name of ['_stdout', '_stderr']) {
    if (Object.hasOwn(handle, name)) Object.defineProperty(handle, name, { get: () => '', set: () => undefined })
  }
}
