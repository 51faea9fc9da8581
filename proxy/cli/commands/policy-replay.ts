/** `sallyport policy replay`: what a candidate policy would have refused, and let out, of what the audit log shows. Exit code 2 when it would have refused something. */
import { type NetworkRules, parseNetworkRules, quoted, SallyportError } from '../../../policies/index.ts'
import type { Config } from '../../config/schema.ts'
import { configuredAddresses, ownListeners } from '../../listeners.ts'
import type { CheckedTenantLayer } from '../../policy/kept-tenants.ts'
import { createPolicySource, type PolicySource } from '../../policy/policy-source.ts'
import { Replay, type ReplayGroup, type ReplayResult, type ReplaySide } from '../../policy/replay.ts'
import { compileRuleset } from '../../ruleset.ts'
import { operatorIdentity } from '../../tokens/operator-identity.ts'
import { addCommand, type CommandHost } from '../command.ts'
import { loadConfigFile, type Loaded } from '../config-file.ts'
import { countInKeptPolicies } from '../kept-policies.ts'
import { configOfLog, eachPastDecision, pastOptions, type PastOptions } from '../past-decisions.ts'
import { json, table } from '../print.ts'
import { readDocument } from '../read-document.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface ReplayOptions extends PastOptions {
  readonly json?: true
}

/** Rows of each kind that are printed; `--json` has all. */
const SHOWN_GROUPS = 50

/** Adds the command. */
export function addReplayCommand(host: CommandHost): void {
  addCommand<ReplayOptions>(host, {
    usage: 'replay <file>',
    description:
      'say what a policy (or a whole configuration) would have refused and let out of what the audit log shows; exit code 2 when it would have refused something that was let out',
    examples: [
      'sallyport policy replay acme.yaml --tenant acme --since 7d',
      'sallyport policy replay next-sallyport.yaml --since 24h --audit /var/lib/sallyport/audit --json',
    ],
    options: [...pastOptions()],
    json: true,
    run: replay,
  })
}

async function replay(terminal: Terminal, options: ReplayOptions, file = ''): Promise<ExitCode> {
  const document = await readDocument(terminal, file)
  const isPolicy = typeof document === 'object' && document !== null && 'kind' in document
  const loaded = isPolicy ? await configOfLog(terminal, options) : await loadConfigFile(terminal, file)
  const source = createPolicySource({
    policy: loaded?.config.policy ?? { ceiling: { kind: 'allow-all' } },
    machineSets: loaded?.machineSets,
  })
  try {
    if (loaded !== undefined) await countInKeptPolicies(source, loaded.config)
    const candidate = isPolicy ? await readCandidate(source, document, file) : undefined
    const judge = new Replay({
      layersFor: (tenant) => {
        const identity = operatorIdentity({
          tenant: candidate === undefined ? tenant : (tenant ?? ''),
          nowMs: Date.now(),
        })
        return candidate === undefined ? source.layersFor(identity) : source.layersIf(identity, candidate)
      },
      network: networkOf(loaded),
      judgesAddresses: loaded !== undefined,
    })
    const path = options.audit ?? loaded?.config.audit.path ?? ''
    const { malformed } = await eachPastDecision(terminal, path, options, (past) => judge.add(past))
    const result = judge.result()
    const notKnown = notKnownText(loaded?.config, result)
    const isReporting = candidate?.layer.mode === 'report'
    terminal.out(
      options.json === true
        ? json({ file, tenant: options.tenant, ...result, malformed, onlyReports: isReporting, notKnown })
        : describe(file, result, malformed, isReporting, notKnown),
    )
    return result.wouldRefuse.decisions > 0 ? EXIT.denied : EXIT.done
  } finally {
    source.close()
  }
}

async function readCandidate(source: PolicySource, document: unknown, file: string): Promise<CheckedTenantLayer> {
  const checked = await source.checkTenant(document)
  if (checked.ok) return checked.value
  const faults = checked.faults.map(({ path, message }) => `${file}: ${path === '' ? '' : `${path}: `}${message}`)
  throw new UsageError(faults.join('\n'))
}

/** Without a configuration nobody knows which addresses are prohibited: then none is. */
function networkOf(loaded: Loaded | undefined): NetworkRules {
  if (loaded !== undefined)
    return compileRuleset(loaded.config, loaded.machineSets, ownListeners(configuredAddresses(loaded.config))).network
  const rules = parseNetworkRules({ allowPrivate: ['0.0.0.0/0', '::/0'] })
  if (rules.ok) return rules.value
  throw new SallyportError('SALLYPORT_POLICY_INVALID', rules.faults[0]?.message ?? 'no rules')
}

function notKnownText(config: Config | undefined, { wouldLetOut }: ReplayResult): readonly string[] {
  return [
    config === undefined
      ? 'whether an address is prohibited, and what ceiling and `deniedHosts` say: name the configuration by `--config`'
      : 'what names resolve to now: the addresses of then were judged, and none for what was not resolved then',
    ...(wouldLetOut.decisions === 0
      ? []
      : ['what the claims of tokens say of that which outer layers refused: a claim that refuses it still does']),
    'whether the server name inside TLS is that of the host (`sni`), and what else ends a connection that policy lets out',
  ]
}

function describe(
  file: string,
  result: ReplayResult,
  malformed: number,
  isReporting: boolean,
  notKnown: readonly string[],
): string {
  const { decisions, wouldRefuse, wouldLetOut, staysLetOut, staysRefused, refusedByClaim } = result
  const claims = refusedByClaim === 0 ? '' : `, ${refusedByClaim} of them by the claim of their token`
  return [
    `${file}, against ${decisions} decisions: ${staysLetOut} stay let out, ${staysRefused} stay refused${claims}`,
    ...(malformed === 0 ? [] : [`${malformed} lines hold a target that no gateway writes, and do not count`]),
    ...(isReporting ? ['the policy only reports: what it would refuse is let out and recorded'] : []),
    '',
    ...sideText(wouldRefuse, `would refuse ${wouldRefuse.decisions} that were let out`, 'because'),
    '',
    ...sideText(wouldLetOut, `would let out ${wouldLetOut.decisions} that were refused`, 'refused then'),
    '',
    'not known from a log:',
    ...notKnown.map((text) => `  - ${text}`),
  ].join('\n')
}

function sideText({ groups, ungrouped }: ReplaySide, title: string, reason: string): readonly string[] {
  if (groups.length === 0) return [title]
  const shown = groups.slice(0, SHOWN_GROUPS)
  const rest = groups.slice(SHOWN_GROUPS).reduce((sum, group) => sum + group.decisions, ungrouped)
  return [
    `${title}:`,
    table([['  destination', 'tenant', reason, 'decisions', 'sandboxes', 'last seen'], ...shown.map(groupRow)]),
    ...(rest === 0 ? [] : [`  and ${rest} more`]),
  ]
}

function groupRow({
  destination,
  tenant,
  reason,
  layer,
  decisions,
  sandboxes,
  lastSeen,
}: ReplayGroup): readonly string[] {
  return [
    `  ${destination}`,
    tenant === undefined ? 'none' : quoted(tenant).slice(1, -1),
    layer === undefined ? reason : `${reason} at ${layer}`,
    String(decisions),
    `${sandboxes.count}${sandboxes.atLeast ? ' or more' : ''}`,
    lastSeen,
  ]
}
