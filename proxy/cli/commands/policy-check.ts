/** `sallyport policy check`: every fault of a configuration or of a single policy, without starting anything. */
import { readFile } from 'node:fs/promises'
import { parseLayerPolicy, type EntryContext } from '../../../policies/index.ts'
import { faultText, type ConfigFault } from '../../config/faults.ts'
import { ConfigError, loadConfig, locateFaults } from '../../config/load.ts'
import type { Config } from '../../config/schema.ts'
import { configWarnings } from '../../config/warnings.ts'
import { readMachineSets } from '../../policy/machine-sets.ts'
import { compileRuleset } from '../../ruleset.ts'
import { addCommand, configOption, type CommandHost } from '../command.ts'
import { loadConfigFile } from '../config-file.ts'
import { json } from '../print.ts'
import { readDocument } from '../read-document.ts'
import { EXIT, type ExitCode, type Terminal } from '../terminal.ts'

interface CheckOptions {
  readonly config?: string
  readonly json?: true
}

interface Report {
  readonly kind: 'configuration' | 'policy'
  readonly faults: readonly ConfigFault[]
  /** What is right, and may still not be what was meant. */
  readonly notes: readonly string[]
}

/** Adds the command. */
export function addCheckCommand(host: CommandHost): void {
  addCommand<CheckOptions>(host, {
    usage: 'check <file>',
    description:
      'check a configuration, or a file with one policy (`kind: static`, …); every fault at once, exit code 3',
    examples: [
      'sallyport policy check sallyport.yaml',
      'sallyport policy check acme-policy.json --config sallyport.yaml   # with the sets of that configuration',
    ],
    options: [configOption('for a single policy: a configuration whose sets it may name; default: none')],
    json: true,
    run: check,
  })
}

async function check(terminal: Terminal, options: CheckOptions, file = ''): Promise<ExitCode> {
  const document = await readDocument(terminal, file).catch(() => undefined)
  const isPolicy = typeof document === 'object' && document !== null && 'kind' in document
  const report = isPolicy
    ? await checkPolicy(terminal, { document, file, config: options.config })
    : await checkConfig(terminal, file)
  if (options.json === true) terminal.out(json({ ok: report.faults.length === 0, ...report }))
  else {
    for (const fault of report.faults) terminal.err(faultText(fault, file))
    if (report.faults.length === 0) terminal.out(`${file}: a ${report.kind} without faults`)
    for (const note of report.notes) terminal.out(`note: ${note}`)
  }
  return report.faults.length === 0 ? EXIT.done : EXIT.usage
}

async function checkConfig(terminal: Terminal, file: string): Promise<Report> {
  const { sets } = readMachineSets()
  try {
    const config = await loadConfig({ file, environment: terminal.environment, machineSets: { ...sets } })
    return { kind: 'configuration', faults: [], notes: notesOn(config) }
  } catch (error) {
    if (error instanceof ConfigError) return { kind: 'configuration', faults: error.faults, notes: [] }
    throw error
  }
}

async function checkPolicy(
  terminal: Terminal,
  {
    document,
    file,
    config,
  }: { readonly document: unknown; readonly file: string; readonly config: string | undefined },
): Promise<Report> {
  const result = parseLayerPolicy(document, await contextOf(terminal, config))
  if (result.ok) return { kind: 'policy', faults: [], notes: [] }
  // What came by standard input is gone: then there are no lines.
  const text = file === '-' ? undefined : await readFile(file, 'utf8').catch(() => undefined)
  return { kind: 'policy', faults: text === undefined ? result.faults : locateFaults(text, result.faults), notes: [] }
}

async function contextOf(terminal: Terminal, file: string | undefined): Promise<EntryContext> {
  if (file === undefined)
    return { from: 'file', sets: new Map(Object.keys(readMachineSets().sets).map((name) => [name, []])) }
  const { config, machineSets } = await loadConfigFile(terminal, file)
  return { from: 'file', sets: compileRuleset(config, machineSets, []).sets }
}

function notesOn(config: Config): readonly string[] {
  const { policy, network, audit, issuers } = config
  const reporting = Object.entries({ ceiling: policy.ceiling, ...policy.tenants }).filter(
    ([, layer]) => layer.mode === 'report',
  )
  return [
    ...configWarnings(config),
    policy.ceiling.kind === 'deny-all' && policy.ceiling.mode === 'enforce'
      ? 'the ceiling is deny-all: nothing is let out'
      : undefined,
    issuers.length === 0 ? 'no issuers: only bound listeners let anything out' : undefined,
    ...reporting.map(([name]) => `${name} only reports: what it would refuse is let out`),
    network.upstream?.resolve === 'upstream'
      ? 'the upstream proxy resolves names: addresses are not checked here'
      : undefined,
    audit.onFailure === 'allow' ? 'connections are let out even when they can not be recorded' : undefined,
    ...issuers
      .filter((issuer) => issuer.unsafeNoAudience)
      .map((issuer) => `tokens of ${issuer.issuer} may be meant for somebody else (unsafeNoAudience)`),
  ].filter((note) => note !== undefined)
}
