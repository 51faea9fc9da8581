/** `sallyport policy presets`: the sets that ship, those of this machine, and the operator's own. */
import { PRESETS } from '../../../policies/index.ts'
import { readMachineSets } from '../../policy/machine-sets.ts'
import { addCommand, configOption, type CommandHost } from '../command.ts'
import { loadConfigFile } from '../config-file.ts'
import { json, table } from '../print.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface PresetsOptions {
  readonly config?: string
  readonly json?: true
}

interface NamedSet {
  readonly name: string
  readonly source: 'shipped' | 'machine' | 'configuration'
  readonly opens: string
  readonly leavesClosed?: string
  readonly entries: readonly string[]
}

/** Adds the command. */
export function addPresetsCommand(host: CommandHost): void {
  addCommand<PresetsOptions>(host, {
    usage: 'presets [name]',
    description: 'list the named sets, or the entries of one',
    examples: [
      'sallyport policy presets',
      'sallyport policy presets github',
      'sallyport policy presets --config sallyport.yaml --json',
    ],
    options: [configOption('a configuration whose own sets are shown too; default: none')],
    json: true,
    run: listPresets,
  })
}

async function listPresets(terminal: Terminal, options: PresetsOptions, named?: string): Promise<ExitCode> {
  const sets = await findSets(terminal, options.config)
  const name = named?.replace(/^@/, '')
  const shown = name === undefined ? sets : sets.filter((set) => set.name === name)
  if (shown.length === 0)
    throw new UsageError(
      `no set is called \`@${name ?? ''}\`; there are ${sets.map((set) => `@${set.name}`).join(', ')}`,
    )
  if (options.json === true) terminal.out(json(shown))
  else if (name === undefined) {
    terminal.out(
      table([
        ['set', 'entries', 'opens'],
        ...sets.map((set) => [`@${set.name}`, String(set.entries.length), set.opens]),
      ]),
    )
  } else for (const set of shown) terminal.out(describe(set))
  return EXIT.done
}

async function findSets(terminal: Terminal, file: string | undefined): Promise<readonly NamedSet[]> {
  const shipped = PRESETS.map((preset): NamedSet => ({ source: 'shipped', ...preset }))
  const machine = Object.entries(readMachineSets().sets).map(([name, entries]): NamedSet => ({
    name,
    source: 'machine',
    opens: `what this machine's ${name} is configured for`,
    entries,
  }))
  if (file === undefined) return [...shipped, ...machine]
  const { config } = await loadConfigFile(terminal, file)
  const own = Object.entries(config.policy.sets).map(([name, entries]): NamedSet => ({
    name,
    source: 'configuration',
    opens: `\`policy.sets\` of ${file}`,
    entries,
  }))
  return [...shipped, ...machine, ...own]
}

function describe(set: NamedSet): string {
  const closed = set.leavesClosed === undefined ? [] : [`leaves closed: ${set.leavesClosed}`]
  return [`@${set.name}: ${set.opens}`, ...closed, ...set.entries.map((entry) => `  ${entry}`)].join('\n')
}
