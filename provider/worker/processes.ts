/** Background processes: started and left, read, fed and ended by whoever knows their id. */
import type { Writable } from 'node:stream'
import { Fault } from './fault.ts'
import { createKeptOutput, type KeptOutput, type OutputBudget } from './kept-output.ts'
import { startRun, type Run, type RunCommand, type RunEnd } from './run.ts'
import type { ChildPipes } from './child-pipes.ts'
import { MAX_KEPT_BYTES } from './wire.ts'

/** One background process, running or ended. */
export interface BackgroundProcess {
  readonly id: string
  readonly run: Run
  readonly output: KeptOutput
  readonly stdin: Writable | undefined
  /** Undefined while it runs. */
  end: RunEnd | undefined
}

/** All of them. */
export interface Processes {
  readonly running: number
  start(command: RunCommand, mark: string, keepBytes: number | undefined): Promise<BackgroundProcess>
  /** @throws Fault `no_such_process` */
  get(id: string): BackgroundProcess
  cancelAll(): void
}

/** Bytes of each stream that are kept unless told otherwise. */
const DEFAULT_KEEP_BYTES = 1024 * 1024
/** Bytes that all processes keep together. */
const BUDGET_BYTES = 128 * 1024 * 1024
/** Ended processes that can still be asked about; the oldest are forgotten. */
const MAX_ENDED = 256

/** `prefix` tells the ids of this worker from those of one before it. */
export function createProcesses(pipes: ChildPipes, prefix: string): Processes {
  const all = new Map<string, BackgroundProcess>()
  const ended: string[] = []
  const budget: OutputBudget = { used: 0, limit: BUDGET_BYTES }
  let count = 0

  const retire = (id: string): void => {
    ended.push(id)
    const oldest = ended.length > MAX_ENDED ? ended.shift() : undefined
    if (oldest === undefined) return
    all.get(oldest)?.output.forget()
    all.delete(oldest)
  }

  return {
    get running() {
      return all.size - ended.length
    },
    async start(command, mark, keepBytes) {
      const output = createKeptOutput(Math.min(keepBytes ?? DEFAULT_KEEP_BYTES, MAX_KEPT_BYTES), budget)
      const run = await startRun(command, { pipes, mark, stdin: true, onOutput: output.push })
      const id = `${prefix}-${++count}`
      const started: BackgroundProcess = { id, run, output, stdin: run.stdin, end: undefined }
      all.set(id, started)
      void run.ended.then((end) => {
        started.end = end
        output.end()
        retire(id)
      })
      return started
    },
    get(id) {
      const found = all.get(id)
      if (found === undefined) throw new Fault('no_such_process', 'no such process')
      return found
    },
    cancelAll() {
      for (const { run } of all.values()) run.cancel()
    },
  }
}
