/** `sallyport policy explain`: what the gateway would decide for a token and a destination, and which layer and entry decide. Connects nowhere. */
import {
  hostText,
  type Destination,
  type Explanation,
  type HostName,
  type LayerExplanation,
  type Parsed,
} from '../../../policies/index.ts'
import type { Config } from '../../config/schema.ts'
import { parseFixedHosts } from '../../egress/fixed-hosts.ts'
import { createResolver } from '../../egress/resolver.ts'
import { configuredAddresses, ownListeners } from '../../listeners.ts'
import { explainDestination, explainedData, readAddresses, readDestination } from '../../policy/explain-destination.ts'
import { createPolicySource } from '../../policy/policy-source.ts'
import { compileRuleset } from '../../ruleset.ts'
import type { Identity } from '../../tokens/identity.ts'
import { operatorIdentity } from '../../tokens/operator-identity.ts'
import { visibleLine } from '../../visible-text.ts'
import { addCommand, configOption, option, repeatable, type CommandHost } from '../command.ts'
import { loadCommandConfig } from '../config-file.ts'
import { identifyOffline } from '../identify-offline.ts'
import { countInKeptPolicies } from '../kept-policies.ts'
import { fromNow, instant, json, table } from '../print.ts'
import { readToken, tokenOptions, type TokenOptions } from '../read-token.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface ExplainOptions extends TokenOptions {
  readonly config?: string
  readonly host?: string
  readonly port: string
  readonly tenant?: string
  readonly address?: readonly string[]
  readonly resolve?: true
  readonly client?: string
  readonly clientCertificate?: string
  readonly json?: true
}

/** Adds the command. */
export function addExplainCommand(host: CommandHost): void {
  addCommand<ExplainOptions>(host, {
    usage: 'explain',
    description:
      'say what the gateway would decide, and which layer and entry decide; exit code 2 when it would refuse',
    examples: [
      'sallyport policy explain --config sallyport.yaml --token-file sandbox.token --host api.github.com',
      'sallyport policy explain --tenant acme --host db.internal --port 5432 --resolve   # without a token: the layers of operator and tenant',
    ],
    options: [
      configOption(),
      ...tokenOptions(),
      option('--host <host>', 'the host that a client would ask for'),
      option('--port <port>', 'its port').default('443'),
      option('--tenant <name>', 'without a token: the tenant to ask for'),
      repeatable('--address <address>', 'take this as what the name resolves to; repeatable'),
      option('--resolve', 'resolve the name as the gateway would, and judge the addresses too'),
      option('--client <address>', 'where the client is, for tokens bound to an address'),
      option(
        '--client-certificate <thumbprint>',
        'SHA-256 thumbprint (base64url) of its certificate, for tokens bound to one',
      ),
    ],
    json: true,
    run: explainDecision,
  })
}

async function explainDecision(terminal: Terminal, options: ExplainOptions): Promise<ExitCode> {
  const destination = askedDestination(options)
  const { config, machineSets } = await loadCommandConfig(terminal, options.config)
  const rules = compileRuleset(config, machineSets, ownListeners(configuredAddresses(config)))
  const token = await readToken(terminal, options)
  if (token !== undefined && options.tenant !== undefined)
    throw new UsageError('`--tenant` is for asking without a token; a token names its tenant itself')
  const identified =
    token === undefined
      ? { ok: true as const, identity: operatorIdentity({ tenant: options.tenant, nowMs: Date.now() }) }
      : await identifyOffline(token, {
          config,
          sets: rules.sets,
          clientAddress: options.client,
          clientCertificate: options.clientCertificate,
        })
  if (!identified.ok) {
    const { reason, detail } = identified
    terminal.out(
      options.json === true
        ? json({ decision: { effective: 'deny', decision: 'deny', reason, detail } })
        : `The token is refused: ${reason}${detail === undefined ? '' : ` (${detail})`}.`,
    )
    return EXIT.denied
  }
  const { identity } = identified
  const subject = token === undefined ? undefined : identity
  const source = createPolicySource({ policy: config.policy, machineSets })
  const resolution = openResolution(config)
  try {
    await countInKeptPolicies(source, config)
    const layers = await source.layersFor(identity)
    const explained = await explainDestination({ layers, network: rules.network, ...resolution }, destination, {
      addresses: options.address && valueOf(readAddresses(options.address)),
      resolve: options.resolve === true,
    })
    const { explanation, note } = explained
    terminal.out(
      options.json === true
        ? json(explainedData(destination, subject, explained))
        : describe(destination, explanation, subject, note),
    )
    return explanation.decision.effective === 'deny' ? EXIT.denied : EXIT.done
  } finally {
    resolution.resolver?.close()
    source.close()
  }
}

function askedDestination(options: ExplainOptions): Destination {
  if (options.host === undefined) throw new UsageError('name the destination by `--host HOST` (and `--port PORT`)')
  const port = /^\d{1,5}$/.test(options.port) ? Number(options.port) : Number.NaN
  if (/\/|^[^:]*:\d*$/.test(options.host))
    throw new UsageError('`--host` is a host alone, such as `api.github.com`; its port goes into `--port`')
  return valueOf(readDestination(options.host, port))
}

/** What the gateway resolves by; it asks nobody before it is asked. */
function openResolution(config: Config) {
  const hosts = parseFixedHosts(config.network.hosts)
  if (!hosts.ok) throw new UsageError(hosts.faults.map((fault) => `network.hosts: ${fault}`).join('\n'))
  const { value } = hosts
  const isFixed = (host: HostName): boolean => value.has(host)
  if (config.network.upstream?.resolve === 'upstream') return { resolver: undefined, isFixed }
  const resolver = createResolver({
    hosts: value,
    timeoutMs: config.timeouts.dnsSeconds * 1000,
    ...(config.network.resolvers === undefined ? {} : { servers: config.network.resolvers }),
  })
  return { resolver, isFixed }
}

function valueOf<T>(read: Parsed<T>): T {
  if (read.ok) return read.value
  throw new UsageError(read.fault.message)
}

function describe(
  destination: Destination,
  explanation: Explanation,
  identity: Identity | undefined,
  note: string | undefined,
): string {
  // Before the ceiling stand the operator's own `deniedHosts`, where there are any.
  const isDenied = (index: number) => index === 0 && explanation.layers[1]?.layer === 'ceiling'
  const rows = explanation.layers.map((layer, index) => [
    `  ${layer.layer}`,
    layer.mode,
    isDenied(index) ? 'deniedHosts' : layer.kind,
    verdictText(layer),
  ])
  const addresses = explanation.addresses.map((address) => `  ${address.address}: ${addressText(address)}`)
  return [
    `${hostText(destination)}:${destination.port} ${decisionText(explanation)}`,
    '',
    table([['  layer', 'mode', 'policy', 'says'], ...rows]),
    ...(addresses.length === 0 ? [] : ['', 'addresses:', ...addresses]),
    '',
    ...(identity === undefined
      ? ['no token was given: the claim layer is taken to allow everything']
      : [identityText(identity)]),
    `policy version ${explanation.version}`,
    ...(note === undefined ? [] : [`note: ${note}`]),
  ].join('\n')
}

function decisionText({ decision }: Explanation): string {
  if (decision.effective === 'deny') {
    const layer = decision.layer === undefined ? '' : `, at the layer ${decision.layer}`
    return `is refused: ${decision.reason}${layer}${decision.rule === undefined ? '' : `, by the entry ${decision.rule}`}.`
  }
  const rule = decision.rule === undefined ? '' : `, by the entry ${decision.rule}`
  const { report } = decision
  return report === undefined
    ? `is let out${rule}.`
    : `is let out${rule}, and recorded: the layer ${report.layer} only reports, and would have refused it (${report.reason}).`
}

function addressText(address: { readonly class: string; readonly prohibited: boolean }): string {
  if (address.prohibited) return `${address.class}, prohibited`
  return address.class === 'public' ? 'public' : `${address.class}, permitted here`
}

function verdictText({ verdict }: LayerExplanation): string {
  const rule = verdict.rule === undefined ? '' : ` (${verdict.rule})`
  return verdict.allows ? `allows${rule}` : `refuses: ${verdict.reason}${rule}`
}

function identityText(identity: Identity): string {
  const parts = [
    `token ${identity.tokenId}`,
    `issuer ${identity.issuer}`,
    identity.keyId && `key ${identity.keyId}`,
    identity.tenant && `tenant ${identity.tenant}`,
    identity.sandbox && `sandbox ${identity.sandbox}`,
  ]
  return `${visibleLine(parts.filter(Boolean).join(', '))}; verified, expires ${instant(identity.expiresAtMs)} (${fromNow(identity.expiresAtMs, Date.now())})`
}
