/** What the parts of a machine's client share: the machine, its folders, the environment of commands, and word of its loss. */
import { SandboxError } from '../../sandbox-error.ts'
import { WorkerFault } from '../../worker-client.ts'
import type { OutputBudget } from '../../worker/kept-output.ts'
import type { Machine } from './e2b-api.ts'
import { HELPER_SCRIPT } from './helper-script.ts'
import { hexOf, runScript } from './machine-script.ts'

/** See the fields. */
export interface MachineContext {
  readonly machine: Machine
  readonly rootDir: string
  /** Where files are until they are whole. */
  readonly spool: string
  /** For one command: with a token that is fresh. */
  readonly environment: () => Promise<Readonly<Record<string, string>>>
  readonly outputBudget: OutputBudget
  /** Runs an operation of the helper; words are bytes, one character each. @throws SandboxError `SALLYPORT_SANDBOX_FILE_FAILED` for a fault */
  readonly help: (operation: string, words: readonly string[], options?: HelpOptions) => Promise<readonly string[]>
  /** Called once the machine does not answer any more. */
  readonly onLoss: (listener: (error: Error) => void) => void
  readonly offLoss: (listener: (error: Error) => void) => void
}

/** How an operation goes. */
export interface HelpOptions {
  readonly signal?: AbortSignal | undefined
  readonly maxLength?: number
}

/** The words for faults, for people. */
const MESSAGES: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or folder',
  EACCES: 'permission denied',
  ENOTDIR: 'not a folder',
  EISDIR: 'a folder, not a file',
  ENOSPC: 'no space left',
  EXDEV: 'the two places are on different file systems',
  ELOOP: 'too many links',
  not_a_file: 'not a regular file',
  outside: 'the path leads out of the folders of this sandbox',
  root: 'a folder of the sandbox itself stays where it is',
}

/** A fault of a file, as a worker's. */
export function fileFault(code: string): SandboxError {
  const message = MESSAGES[code] ?? code
  return new SandboxError('SALLYPORT_SANDBOX_FILE_FAILED', message, { cause: new WorkerFault(code, message) })
}

/** The helper of one machine. */
export function helperOf(machine: Machine, rootDir: string, spool: string): MachineContext['help'] {
  const [root, place] = [rootDir, spool].map((each) => Buffer.from(each).toString('hex'))
  return async (operation, words, options = {}) => {
    const lines = await runScript(machine, {
      script: HELPER_SCRIPT,
      words: [root ?? '', place ?? '', operation, ...words.map(hexOf)],
      ...options,
    })
    const last = lines.at(-1) ?? ''
    if (last !== 'ok') throw fileFault(last.replace('fault ', ''))
    return lines.slice(0, -1)
  }
}
