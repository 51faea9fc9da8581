/** `sallyport run`: one command, shut in, with nothing to go out by but a gateway. */
import { addCommand, option, type CommandHost } from '../../../proxy/cli/command.ts'
import { EXIT, reportFault, type Terminal, UsageError } from '../../../proxy/cli/terminal.ts'
import { parseSeconds } from '../../../proxy/config/values.ts'
import { SandboxError } from '../../sandbox-error.ts'
import { installCommand, isInPath } from '../install-command.ts'
import { readSandboxOptions, type SandboxOptions, sandboxOptions } from '../sandbox-options.ts'
import { createTeller } from '../tell.ts'

interface RunOptions extends SandboxOptions {
  readonly timeout?: string
  readonly stdin: boolean
  readonly tty: boolean
  readonly json?: true
  readonly quiet?: true
}

/** As of `timeout(1)`. */
const TIMED_OUT_EXIT_CODE = 124
/** As of `env(1)`, `timeout(1)` and container engines: it is not the command that failed. */
const NOT_RUN_EXIT_CODE = 125

/** How often refusals are looked for. */
const LOOK_MS = 100

/** Adds the command. */
export function addRunCommand(host: CommandHost): void {
  addCommand<RunOptions>(host, {
    usage: 'run <command...>',
    description:
      'run a command that can change this folder alone and reach only the hosts you allow\n\n' +
      'The rest of the machine is read-only or not there at all: no home folder, no other processes, no network but the gateway. ' +
      'Input, output, signals and the exit code are those of the command, and so is the terminal where there is one (in images ' +
      'without `script` of util-linux the command has pipes). Refused connections are told on standard error as they happen.\n\n' +
      "Exit codes: the command's own; 124 when --timeout ended it, 125 when it could not be run, 3 for wrong usage.",
    examples: [
      'sallyport run --allow example.com -- curl -sI https://example.com',
      'sallyport run --allow @pypi --allow api.openai.com --env OPENAI_API_KEY -- python3 agent.py',
      'sallyport run --report -- npm install        # what would it need?',
      'sallyport run --backend docker --image debian:stable -- bash',
    ],
    options: [
      ...sandboxOptions(),
      option('--timeout <time>', 'kill the command after this: `30s`, `5m`'),
      option('--no-stdin', 'the command reads nothing'),
      option('--no-tty', 'the command has pipes, also in a terminal'),
      option('--json', 'tell of connections as lines of JSON, on standard error'),
      option('-q, --quiet', 'tell of no connections'),
    ],
    passThrough: true,
    run: (terminal, options, ...operands) => run(terminal, options, operands.flat() as string[]),
  })
}

async function run(terminal: Terminal, options: RunOptions, command: readonly string[]): Promise<number> {
  const timeoutMs = readTimeout(options.timeout)
  const request = await readSandboxOptions(terminal, options)
  // Loaded here, so that other commands start fast.
  const [{ openSandbox }, { runInside }] = await Promise.all([import('../open-sandbox.ts'), import('../run-inside.ts')])
  try {
    const { sandbox, folder, decisions, network, close } = await untilInterrupted((signal) =>
      openSandbox(terminal, request, { label: 'run', signal }),
    )
    const teller = createTeller((line) => terminal.err(line), network, {
      json: options.json === true,
      quiet: options.quiet === true,
      expectsSome: request.reportOnly || request.policy.kind !== 'deny-all',
    })
    const look = async (): Promise<void> => teller.tell(await decisions.read())
    const looking = setInterval(() => void look().catch(() => undefined), LOOK_MS)
    let exitCode = NOT_RUN_EXIT_CODE
    let timedOut = false
    try {
      const { stdin, tty } = options
      ;({ exitCode, timedOut } = await runInside(sandbox, { command, folder, timeoutMs, stdin, tty }))
      if (timedOut) exitCode = TIMED_OUT_EXIT_CODE
    } finally {
      clearInterval(looking)
      await close(look)
    }
    if (timedOut && options.quiet !== true) terminal.err(`sallyport: stopped after ${options.timeout ?? ''}`)
    teller.summary({ exitCode, timedOut })
    return exitCode
  } catch (error) {
    const searchPath = terminal.environment['PATH'] ?? ''
    const isInstalled = isInPath('bwrap', `${searchPath}:/usr/bin:/bin`)
    return failed(terminal, error, { backend: request.backend, searchPath, isInstalled })
  }
}

/** What is known of the machine when a run fails. */
export interface FailureContext {
  readonly backend: string
  readonly searchPath: string
  /** Whether bubblewrap is there. */
  readonly isInstalled: boolean
}

/** Says why it could not be run; gives back the exit code. */
export function failed(terminal: Pick<Terminal, 'err'>, error: unknown, context: FailureContext): number {
  if (error instanceof Interrupted) return error.exitCode
  const install = installCommand('bubblewrap', context.searchPath)
  const isMissing = error instanceof SandboxError && error.code === 'SALLYPORT_SANDBOX_BACKEND_MISSING'
  if (isMissing && context.backend === 'process' && !context.isInstalled && install !== undefined) {
    terminal.err(
      `sallyport: bubblewrap is what shuts the command in, and it is not installed. This installs it:\n\n  ${install}\n`,
    )
    return NOT_RUN_EXIT_CODE
  }
  return reportFault(terminal, error) === EXIT.usage ? EXIT.usage : NOT_RUN_EXIT_CODE
}

function readTimeout(text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const seconds = parseSeconds(text)
  const ms = Math.ceil((seconds ?? 0) * 1000)
  // Beyond this a timer of Node fires at once.
  if (ms >= 1 && ms < 2 ** 31) return ms
  throw new UsageError(`\`--timeout ${text}\`: write a time such as \`30s\`, \`5m\` or \`1h\`, of at most 24 days`)
}

class Interrupted extends Error {
  readonly exitCode: number

  constructor(exitCode: number) {
    super('interrupted')
    this.exitCode = exitCode
  }
}

/** Until the command runs, Ctrl-C is for the sandbox that is being made. */
async function untilInterrupted<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController()
  const interrupt = () => controller.abort(new Interrupted(130))
  const terminate = () => controller.abort(new Interrupted(143))
  process.on('SIGINT', interrupt)
  process.on('SIGTERM', terminate)
  try {
    return await work(controller.signal)
  } finally {
    process.off('SIGINT', interrupt)
    process.off('SIGTERM', terminate)
  }
}
