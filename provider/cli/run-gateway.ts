/** The gateway of one run: inside this process, without listeners of its own, with a log that ends with the run. */
import { randomBytes } from 'node:crypto'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { EgressPolicy } from '../../policies/index.ts'
import { type NetworkRules, parseNetworkRules, parsePolicy, parseSets } from '../../policies/index.ts'
import { readDocument } from '../../proxy/cli/read-document.ts'
import { type Terminal, UsageError } from '../../proxy/cli/terminal.ts'
import { ConfigError, createGateway, type Gateway, parseConfig } from '../../proxy/index.ts'
import { readMachineSets } from '../../proxy/policy/machine-sets.ts'
import { GATEWAY_OWNER_FILE } from '../egress/embedded.ts'
import { ownerOfThisProcess } from '../owner.ts'
import { openRuntimeRoot } from '../runtime-folder.ts'
import { createDecisionFeed, type DecisionFeed } from './decision-feed.ts'
import type { SandboxRequest } from './sandbox-options.ts'

/** A gateway, and what a sandbox needs to know for it. */
export interface RunGateway {
  readonly gateway: Gateway
  readonly decisions: DecisionFeed
  readonly network: NetworkRules
  readonly egress: EgressPolicy
  readonly tenant: string | undefined
  /** Takes the log away too. To be called when nothing more is to be read. */
  readonly remove: () => Promise<void>
}

/** Sections of a configuration that a run has its own way with. */
const OWN_SECTIONS = ['listen', 'issuers', 'state', 'audit']

/** When only reporting, the policy stands here, where a `mode` may be. */
const REPORTING_TENANT = 'run'

/**
 * Opens it. The runtime root is made when it is not there.
 * @throws UsageError or ConfigError with what is wrong in the policy or the file
 */
export async function openRunGateway(
  terminal: Terminal,
  runtimeRoot: string,
  request: Pick<SandboxRequest, 'policy' | 'reportOnly' | 'configFile'>,
): Promise<RunGateway> {
  const { configFile, policy, reportOnly } = request
  const file = configFile === undefined ? {} : sectionsOf(await readDocument(terminal, configFile), configFile)
  await openRuntimeRoot(runtimeRoot)
  // Named and owned like any gateway's folder, so that `sandbox reap` finds what a killed run leaves.
  const folder = path.join(runtimeRoot, `gw_${randomBytes(6).toString('hex')}`)
  const document = {
    ...file,
    policy: {
      ceiling: { kind: 'allow-all' },
      ...file['policy'],
      tenants: reportOnly ? { [REPORTING_TENANT]: { ...policy, mode: 'report' } } : {},
    },
    listen: { proxy: 'off', admin: 'off' },
    state: path.join(folder, 'state'),
    audit: { path: path.join(folder, 'audit') },
  }
  const machineSets = readMachineSets()
  const parsed = parseConfig(document, {
    folder: configFile === undefined ? process.cwd() : path.dirname(path.resolve(configFile)),
    machineSets: { ...machineSets.sets },
  })
  checkPolicy(policy, { ...(parsed.ok ? parsed.config.policy.sets : {}), ...machineSets.sets })
  if (!parsed.ok) throw new ConfigError(parsed.faults, configFile)

  await mkdir(folder, { mode: 0o700 })
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true, maxRetries: 3 })
  try {
    await writeFile(path.join(folder, GATEWAY_OWNER_FILE), ownerOfThisProcess(), { mode: 0o600 })
    const { config } = parsed
    const network = parseNetworkRules(config.network, [])
    if (!network.ok) throw new ConfigError([], configFile)
    const say = (_fields: object, message: string): void => terminal.err(`sallyport: ${message}`)
    const gateway = await createGateway({
      config,
      machineSets,
      logger: { info: () => undefined, warn: () => undefined, error: say },
    })
    return {
      gateway,
      decisions: createDecisionFeed(config.audit.path),
      network: network.value,
      egress: reportOnly ? { kind: 'allow-all' } : policy,
      tenant: reportOnly ? REPORTING_TENANT : undefined,
      remove,
    }
  } catch (error) {
    await remove()
    throw error
  }
}

function sectionsOf(document: unknown, file: string): Readonly<Record<string, object>> {
  if (document === null || document === undefined) return {}
  if (typeof document !== 'object') throw new UsageError(`\`${file}\` is not a configuration`)
  return Object.fromEntries(Object.entries(document).filter(([name]) => !OWN_SECTIONS.includes(name)))
}

/** Said in the words of the command line, before it is said in those of a configuration. */
function checkPolicy(policy: SandboxRequest['policy'], sets: Readonly<Record<string, readonly string[]>>): void {
  const known = parseSets(sets)
  const read = parsePolicy(policy, { from: 'file', ...(known.ok && { sets: known.value }) })
  if (read.ok) return
  throw new UsageError(`this can not be allowed: ${read.faults.map(({ message }) => message).join('; ')}`)
}
