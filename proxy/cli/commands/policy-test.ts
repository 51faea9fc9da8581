/** `sallyport policy test`: runs a file of cases, in the format of the product's own, so that operators test their policies with what enforces them. */
import { runPolicyCases, type CaseDefaults, type CaseResult } from '../../../policies/index.ts'
import { createPolicySource } from '../../policy/policy-source.ts'
import { compileRuleset } from '../../ruleset.ts'
import { readMachineSets } from '../../policy/machine-sets.ts'
import { addCommand, configOption, option, type CommandHost } from '../command.ts'
import { loadConfigFile } from '../config-file.ts'
import { visibleLine } from '../../visible-text.ts'
import { operatorIdentity } from '../../tokens/operator-identity.ts'
import { json } from '../print.ts'
import { readDocument } from '../read-document.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface TestOptions {
  readonly config?: string
  readonly tenant?: string
  readonly json?: true
}

/** Adds the command. */
export function addTestCommand(host: CommandHost): void {
  addCommand<TestOptions>(host, {
    usage: 'test <file>',
    description: 'run a file of cases (YAML or JSON); exit code 1 when one fails',
    examples: [
      'sallyport policy test cases.yaml   # cases that bring their own layers',
      'sallyport policy test cases.yaml --config sallyport.yaml --tenant acme   # cases against the ceiling and the tenant of a configuration',
    ],
    options: [
      configOption('a configuration whose layers, sets and networks stand where the cases bring none; default: none'),
      option('--tenant <name>', 'with --config: the tenant whose policy the cases are about'),
    ],
    json: true,
    run: runTest,
  })
}

async function runTest(terminal: Terminal, options: TestOptions, file = ''): Promise<ExitCode> {
  const results = runPolicyCases(await readDocument(terminal, file), await defaultsOf(terminal, options))
  const failed = results.filter((result) => !result.ok)
  if (options.json === true)
    terminal.out(json({ passed: results.length - failed.length, failed: failed.length, results }))
  else
    terminal.out(
      [...failed.map(describe), `${results.length - failed.length} passed, ${failed.length} failed`].join('\n'),
    )
  return failed.length === 0 ? EXIT.done : EXIT.failed
}

async function defaultsOf(terminal: Terminal, options: TestOptions): Promise<CaseDefaults> {
  if (options.config === undefined) {
    if (options.tenant !== undefined) throw new UsageError('`--tenant` needs `--config FILE`')
    return { sets: new Map(Object.keys(readMachineSets().sets).map((name) => [name, []])) }
  }
  const { config, machineSets } = await loadConfigFile(terminal, options.config)
  const rules = compileRuleset(config, machineSets, [])
  const source = createPolicySource({ policy: config.policy, machineSets })
  try {
    const layers = await source.layersFor(operatorIdentity({ tenant: options.tenant, nowMs: Date.now() }))
    return { sets: rules.sets, network: rules.network, layers }
  } finally {
    source.close()
  }
}

function describe(result: CaseResult): string {
  return visibleLine(`FAILED ${result.name}: ${result.detail ?? ''}`)
}
