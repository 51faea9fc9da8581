/** The command line: all commands, and how each outcome becomes an exit code (0 done, 1 failed, 2 denied, 3 wrong usage or configuration). */
import { Command, CommanderError } from 'commander'
import { packageVersion } from './package-version.ts'
import { addAuditCommands } from './commands/audit.ts'
import { addDoctorCommand } from './commands/doctor.ts'
import { addEnvCommand } from './commands/env.ts'
import { addKeysCommands } from './commands/keys.ts'
import { addPolicyCommands } from './commands/policy.ts'
import { addServeCommand } from './commands/serve.ts'
import { addTokenCommands } from './commands/token.ts'
import type { CommandHost } from './command.ts'
import type { Examine } from './commands/doctor.ts'
import { EXIT, processTerminal, reportFault, type Terminal } from './terminal.ts'

/** What a product around the gateway adds to its command line. */
export interface CommandLineExtension {
  readonly addCommands: (host: CommandHost) => void
  /** What `doctor` looks at besides the gateway's own. */
  readonly examine: Examine
}

/** Runs one command line, without the program's own name; gives back the exit code and never throws. */
export async function main(
  args: readonly string[],
  terminal: Terminal = processTerminal(),
  extension?: CommandLineExtension,
): Promise<number> {
  let exitCode: number = EXIT.done
  const program = createProgram(
    terminal,
    (code) => {
      exitCode = code
    },
    extension,
  )
  try {
    await program.parseAsync(args, { from: 'user' })
    return exitCode
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage
    return reportFault(terminal, error)
  }
}

/** All commands; `onExit` is told the exit code of the one that ran. */
export function createProgram(
  terminal: Terminal,
  onExit: (code: number) => void,
  extension?: CommandLineExtension,
): Command {
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
  addServeCommand(host)
  addTokenCommands(host)
  addKeysCommands(host)
  addPolicyCommands(host)
  addAuditCommands(host)
  addEnvCommand(host)
  extension?.addCommands(host)
  addDoctorCommand(host, extension?.examine)
  return program
}
