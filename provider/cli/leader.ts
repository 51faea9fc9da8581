/** The first process of a run, inside: it says its number, so that signals can be sent to it and all that it starts, and gives way to the command. */
import { quoteShell } from '../../proxy/cli/quote-shell.ts'
import type { Sandbox } from '../sandbox.ts'

/** Begins the line that the shell writes before it gives way. */
const MARK = 'sallyport-leader '
const MAX_LINE_BYTES = 64
const SAY_NUMBER = `printf '${MARK}%s\\n' "$$" >&2`

/** What to run inside. */
export interface LeaderCommand {
  readonly command: string
  readonly args: readonly string[]
}

/** The command behind a shell that says its number. A command that isn't there is the shell's to report, with 127 or 126. */
export function underLeader(command: readonly string[]): LeaderCommand {
  return { command: '/bin/sh', args: ['-c', `${SAY_NUMBER}\nexec "$@"`, 'sallyport', ...command] }
}

/** A terminal's size. */
export interface TerminalSize {
  readonly rows: number
  readonly columns: number
}

/** The same in a terminal of the sandbox's own, which `script` opens (of util-linux). It knows commands only as a line for a shell. */
export function underTerminal(command: readonly string[], { rows, columns }: TerminalSize): LeaderCommand {
  const line = `stty sane rows ${rows} cols ${columns}; exec ${command.map(quoteShell).join(' ')}`
  const script = `${SAY_NUMBER}\nSHELL=/bin/sh exec script -qefc "$1" /dev/null`
  return { command: '/bin/sh', args: ['-c', script, 'sallyport', line] }
}

/** Whether a sandbox can open a terminal. */
export async function hasTerminals(sandbox: Sandbox): Promise<boolean> {
  const { exitCode } = await sandbox.exec(
    'script --version | grep -q util-linux && command -v stty && test -e /dev/ptmx',
  )
  return exitCode === 0
}

/** Tells the terminal under `leader` its new size; the kernel tells whoever runs in it. */
export async function resizeTerminal(sandbox: Sandbox, leader: number, { rows, columns }: TerminalSize): Promise<void> {
  // The list has no line feed at its end, which `read` calls a failure.
  const child = `read -r child _ < /proc/${leader}/task/${leader}/children`
  await sandbox.exec(`${child}; stty -F "/proc/$child/fd/0" rows ${rows} cols ${columns}`)
}

/** Sends a signal to a leader and its whole process group. */
export async function signalLeader(sandbox: Sandbox, leader: number, signal: NodeJS.Signals): Promise<void> {
  await sandbox.exec(`kill -s ${signal.replace(/^SIG/, '')} -- -${leader}`)
}

/** Takes the number out of standard error. */
export interface LeaderReader {
  /** What is the command's own. */
  readonly push: (bytes: Uint8Array) => Uint8Array
  readonly leader: Promise<number>
}

/** Reads up to the end of the first line, and everything as it is from then on. */
export function createLeaderReader(): LeaderReader {
  let head: Buffer | undefined = Buffer.alloc(0)
  const { promise, resolve } = Promise.withResolvers<number>()
  return {
    leader: promise,
    push: (bytes) => {
      if (head === undefined) return bytes
      const seen = Buffer.concat([head, bytes])
      const end = seen.indexOf(10)
      if (end < 0 && seen.length <= MAX_LINE_BYTES) {
        head = seen
        return new Uint8Array()
      }
      head = undefined
      const line = seen.toString('latin1', 0, Math.max(end, 0))
      const number = line.startsWith(MARK) ? Number(line.slice(MARK.length)) : Number.NaN
      // A shell that could not even say this has said why.
      if (!Number.isSafeInteger(number) || number < 2) return seen
      resolve(number)
      return seen.subarray(end + 1)
    },
  }
}
