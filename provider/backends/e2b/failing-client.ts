/** What stands for a machine in which nothing can be done any more: it can be ended, and says why to everything else. */
import type { WorkerClient } from '../../worker-client.ts'

/** Every method fails with `error`. */
export function failingClient(error: Error): WorkerClient {
  const fail = (): Promise<never> => Promise.reject(error)
  const failStream = (): AsyncIterable<never> => ({ [Symbol.asyncIterator]: () => ({ next: fail }) })
  return {
    health: fail,
    configure: fail,
    probe: fail,
    execute: fail,
    spawn: fail,
    hasProcess: fail,
    output: failStream,
    wait: fail,
    writeStdin: fail,
    closeStdin: fail,
    signal: fail,
    writeFile: fail,
    readFile: fail,
    readFileStream: failStream,
    listFiles: fail,
    stat: fail,
    mkdir: fail,
    remove: fail,
    move: fail,
  }
}
