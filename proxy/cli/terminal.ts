/** What a command sees of the world: where it prints, what the environment says, and how it ends. */
import { SallyportError } from '../../policies/error.ts'
import type { Environment } from '../config/environment.ts'
import { visibleText } from '../visible-text.ts'

/** How a command ends. */
export const EXIT = { done: 0, failed: 1, denied: 2, usage: 3 } as const

/** One of {@link EXIT}. */
export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

/** A command's surroundings. */
export interface Terminal {
  /** To standard output; a newline is added. What a terminal would take for more than text is shown by its number. */
  readonly out: (text: string) => void
  /** To standard error, likewise. */
  readonly err: (text: string) => void
  readonly environment: Environment
  /** Everything on standard input, at most 1 MiB. */
  readonly readInput: () => Promise<string>
  /** Aborted by SIGINT and SIGTERM. */
  readonly signal: AbortSignal
}

/** The command line can't be used as it is; exit code 3. The message says what would be right. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** Prints a fault in one line (a configuration: one for each fault) and says how to exit. Never prints a stack. */
export function reportFault(terminal: Pick<Terminal, 'err'>, error: unknown): ExitCode {
  if (error instanceof UsageError) {
    terminal.err(`sallyport: ${error.message}`)
    return EXIT.usage
  }
  if (error instanceof SallyportError) {
    const isConfig = error.code === 'SALLYPORT_CONFIG_INVALID' || error.code === 'SALLYPORT_CONFIG_UNREADABLE'
    terminal.err(isConfig ? error.message : `sallyport: ${error.message}`)
    return isConfig || error.code === 'SALLYPORT_POLICY_INVALID' ? EXIT.usage : EXIT.failed
  }
  terminal.err(`sallyport: ${error instanceof Error ? (error.message.split('\n')[0] ?? error.name) : 'unknown fault'}`)
  return EXIT.failed
}

/** The terminal of this process. */
export function processTerminal(): Terminal {
  const controller = new AbortController()
  let isWatching = false
  // Whoever reads has seen enough (`| head`): that is no fault.
  process.stdout.on('error', () => process.exit(EXIT.done))
  return {
    out: (text) => void process.stdout.write(`${visibleText(text)}\n`),
    err: (text) => void process.stderr.write(`${visibleText(text)}\n`),
    environment: process.env,
    readInput,
    // Signals are only taken from Node's default once a command asks for this.
    get signal() {
      if (!isWatching) {
        isWatching = true
        for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => controller.abort(name))
      }
      return controller.signal
    },
  }
}

const MAX_INPUT_BYTES = 1024 * 1024

async function readInput(): Promise<string> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    length += chunk.length
    if (length > MAX_INPUT_BYTES) throw new UsageError('standard input is larger than 1 MiB')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}
