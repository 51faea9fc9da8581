/** The command line: all commands, and how each outcome becomes an exit code (0 done, 1 failed, 2 denied, 3 wrong usage or configuration). */
import { Command, CommanderError } from 'commander'
import { packageVersion } from './package-version.ts'
import type { CommandHost } from './command.ts'
import type { Examine } from './commands/doctor.ts'
import { EXIT, processTerminal, reportFault, type Terminal } from './terminal.ts'

/** Loads what adds a command or a group of them: only what is asked for is loaded. */
export type LoadCommand = () => Promise<(host: CommandHost) => void>

/** What a product around the gateway adds to its command line. */
export interface CommandLineExtension {
  /** By name. */
  readonly commands: Readonly<Record<string, LoadCommand>>
  /** What `doctor` looks at besides the gateway's own. */
  readonly examine: Examine
}

const COMMANDS: Readonly<Record<string, LoadCommand>> = {
  serve: async () => (await import('./commands/serve.ts')).addServeCommand,
  token: async () => (await import('./commands/token.ts')).addTokenCommands,
  keys: async () => (await import('./commands/keys.ts')).addKeysCommands,
  policy: async () => (await import('./commands/policy.ts')).addPolicyCommands,
  audit: async () => (await import('./commands/audit.ts')).addAuditCommands,
  env: async () => (await import('./commands/env.ts')).addEnvCommand,
}

/** Runs one command line, without the program's own name; gives back the exit code and never throws. */
export async function main(
  args: readonly string[],
  terminal: Terminal = processTerminal(),
  extension?: CommandLineExtension,
): Promise<number> {
  let exitCode: number = EXIT.done
  const onExit = (code: number): void => {
    exitCode = code
  }
  try {
    const program = await createProgram(terminal, onExit, extension, args[0])
    await program.parseAsync(args, { from: 'user' })
    return exitCode
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage
    return reportFault(terminal, error)
  }
}

/** All commands, or `asked` alone if it is one; `onExit` is told the exit code of the one that ran. */
export async function createProgram(
  terminal: Terminal,
  onExit: (code: number) => void,
  extension?: CommandLineExtension,
  asked?: string,
): Promise<Command> {
  const program = new Command('sallyport')
    .description(
      'The guarded exit for code that nobody fully trusts: a proxy that lets out what a token allows, and writes down every decision.',
    )
    .version(packageVersion(), '-V, --version')
    .exitOverride()
    .showSuggestionAfterError()
    .showHelpAfterError('With --help it says what it takes, with examples.')
    // So that a command may leave the options behind its first operand to somebody else.
    .enablePositionalOptions()
    .configureHelp({ sortSubcommands: false })
    .configureOutput({
      writeOut: (text) => terminal.out(text.trimEnd()),
      writeErr: (text) => terminal.err(text.trimEnd()),
    })
    .addHelpText(
      'after',
      '\nExample:\n  $ sallyport serve                 # a development set-up in ./.sallyport, and two lines to paste\n\nExit codes: 0 done, 1 failed, 2 denied, 3 wrong usage or configuration.',
    )
  const host = { terminal, parent: program, onExit }
  const commands: Readonly<Record<string, LoadCommand>> = {
    ...COMMANDS,
    ...extension?.commands,
    doctor: async () => {
      const { addDoctorCommand } = await import('./commands/doctor.ts')
      return (to) => addDoctorCommand(to, extension?.examine)
    },
  }
  for (const add of await Promise.all(neededFor(asked, commands).map((load) => load()))) add(host)
  return program
}

function neededFor(asked: string | undefined, commands: Readonly<Record<string, LoadCommand>>): readonly LoadCommand[] {
  if (asked === '-V' || asked === '--version') return []
  const found = asked !== undefined && Object.hasOwn(commands, asked) ? commands[asked] : undefined
  return found === undefined ? Object.values(commands) : [found]
}
