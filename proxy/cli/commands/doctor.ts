/** `sallyport doctor`: what this machine can run and enforce, and the command that installs what is missing. */
import type { Environment } from '../../config/environment.ts'
import { faultText } from '../../config/faults.ts'
import { ConfigError } from '../../config/load.ts'
import type { Config } from '../../config/schema.ts'
import { parseConfig } from '../../config/parse.ts'
import { addCommand, configOption, type CommandHost } from '../command.ts'
import { findConfigFile, loadConfigFile } from '../config-file.ts'
import { checkConfigured, checkMachine, type Finding } from '../doctor-checks.ts'
import { json, table } from '../print.ts'
import { EXIT, type ExitCode, type Terminal } from '../terminal.ts'

interface DoctorOptions {
  readonly config?: string
  readonly json?: true
}

/** Looks at more than the gateway. */
export type Examine = (environment: Environment) => Promise<readonly Finding[]>

/** Adds the command. */
export function addDoctorCommand(host: CommandHost, examineMore: Examine = () => Promise.resolve([])): void {
  addCommand<DoctorOptions>(host, {
    usage: 'doctor',
    description: 'say what this machine can run and enforce; exit code 1 when the gateway could not run as configured',
    examples: ['sallyport doctor', 'sallyport doctor --config sallyport.yaml --json'],
    options: [configOption()],
    json: true,
    run: (terminal, options) => examine(terminal, options, examineMore),
  })
}

async function examine(terminal: Terminal, options: DoctorOptions, examineMore: Examine): Promise<ExitCode> {
  const { finding, config } = await readConfig(terminal, options.config)
  const findings = [
    ...(await checkMachine(terminal.environment)),
    ...(await examineMore(terminal.environment)),
    finding,
    ...(config === undefined ? [] : await checkConfigured(config)),
  ]
  const failed = findings.some(({ status }) => status === 'fail')
  if (options.json === true) terminal.out(json({ ok: !failed, findings }))
  else terminal.out(describe(findings))
  return failed ? EXIT.failed : EXIT.done
}

async function readConfig(
  terminal: Terminal,
  named: string | undefined,
): Promise<{ readonly finding: Finding; readonly config?: Config }> {
  const file = findConfigFile(terminal, named)
  const name = 'configuration'
  try {
    if (file !== undefined)
      return { finding: { name, status: 'ok', detail: file }, config: (await loadConfigFile(terminal, file)).config }
    const defaults = parseConfig({}, { environment: terminal.environment, folder: process.cwd() })
    if (!defaults.ok)
      return { finding: { name, status: 'fail', detail: defaults.faults.map((fault) => faultText(fault)).join('; ') } }
    return {
      finding: { name, status: 'ok', detail: 'none named; the defaults are looked at' },
      config: defaults.config,
    }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    return { finding: { name, status: 'fail', detail: error.faults.map((fault) => faultText(fault, file)).join('; ') } }
  }
}

function describe(findings: readonly Finding[]): string {
  const rows = findings.map(({ status, name, detail, fix }) => [
    status,
    name,
    fix === undefined ? detail : `${detail} → ${fix}`,
  ])
  const packages = findings.flatMap(({ status, fix }) =>
    status === 'missing' && fix?.startsWith('apt-get install -y ') === true
      ? [fix.slice('apt-get install -y '.length)]
      : [],
  )
  return [
    table(rows),
    ...(packages.length === 0
      ? []
      : ['', `everything that is missing and in Debian: apt-get install -y ${packages.join(' ')}`]),
  ].join('\n')
}
