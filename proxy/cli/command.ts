/** How commands are declared: each with a description, an example, and an action that gives back its exit code. */
import { Command, Option } from 'commander'
import type { Terminal } from './terminal.ts'

/** Where a command is added, and how it tells its exit code. */
export interface CommandHost {
  readonly terminal: Terminal
  /** The group (or the program itself) that commands are added to. */
  readonly parent: Command
  /** Called once, by the command that ran. */
  readonly onExit: (code: number) => void
}

/** A command as its file declares it. */
export interface CommandSpec<Options> {
  /** Name and arguments, such as `check <file>`. */
  readonly usage: string
  readonly description: string
  /** Lines for the help, each a command that works. */
  readonly examples: readonly string[]
  readonly options?: readonly Option[]
  /** Also offers `--json`. */
  readonly json?: boolean
  /** What stands behind the first operand is left as it is, also what looks like an option. */
  readonly passThrough?: boolean
  /** Runs it and gives back the exit code; `operands` are the arguments, in order (a variadic one is a list). */
  readonly run: (
    terminal: Terminal,
    options: Options,
    ...operands: readonly (string | undefined)[]
  ) => Promise<number> | number
}

/** Adds a command. */
export function addCommand<Options extends object>(host: CommandHost, spec: CommandSpec<Options>): void {
  const command = host.parent.command(spec.usage).description(spec.description)
  for (const item of spec.options ?? []) command.addOption(item)
  if (spec.json === true) command.addOption(option('--json', 'print JSON'))
  if (spec.passThrough === true) command.passThroughOptions()
  command.addHelpText('after', examplesText(spec.examples))
  command.action(async (...given: unknown[]) => {
    const operands = given.slice(0, -2) as (string | undefined)[]
    host.onExit(await spec.run(host.terminal, command.opts<Options>(), ...operands))
  })
}

/** Adds a group of commands, such as `token`. */
export function addGroup(
  host: CommandHost,
  name: string,
  description: string,
  examples: readonly string[],
): CommandHost {
  const parent = host.parent.command(name).description(description).addHelpText('after', examplesText(examples))
  return { ...host, parent }
}

/** An option; `--name <value>` takes a value. */
export function option(flags: string, description: string): Option {
  return new Option(flags, description)
}

const DEFAULT_CONFIG = '$SALLYPORT_CONFIG, else the development set-up in ./.sallyport'

/** `--config FILE`, as all commands spell it; `purpose` where it is not simply the configuration by default. */
export function configOption(purpose = `configuration; default: ${DEFAULT_CONFIG}`): Option {
  return option('-c, --config <file>', purpose)
}

/** Collects a repeatable option. */
export function repeatable(flags: string, description: string): Option {
  return new Option(flags, description).argParser((value: string, previous: readonly string[] | undefined) => [
    ...(previous ?? []),
    value,
  ])
}

function examplesText(examples: readonly string[]): string {
  return `\n${examples.length === 1 ? 'Example' : 'Examples'}:\n${examples.map((example) => `  $ ${example}`).join('\n')}`
}
