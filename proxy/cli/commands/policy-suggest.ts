/** `sallyport policy suggest`: the shortest policy that would have allowed what the audit log shows. Puts nothing in force. */
import { DOUBT_KINDS, type DoubtKind, type EntrySets, quoted } from '../../../policies/index.ts'
import { SeenDestinations, type LeftOut, type SeenPolicy, type Sightings } from '../../policy/seen-destinations.ts'
import { compileRuleset } from '../../ruleset.ts'
import { addCommand, option, repeatable, type CommandHost } from '../command.ts'
import { configOfLog, eachPastDecision, pastOptions, type PastOptions } from '../past-decisions.ts'
import { json, table } from '../print.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface SuggestOptions extends PastOptions {
  readonly includeRefused?: true
  readonly include?: readonly string[]
  readonly minSandboxes: string
  readonly wildcards: string
  readonly sets?: boolean
  readonly json?: true
}

/** Adds the command. */
export function addSuggestCommand(host: CommandHost): void {
  addCommand<SuggestOptions>(host, {
    usage: 'suggest',
    description:
      'print the shortest policy that would have allowed what the audit log shows; read it before you use it',
    examples: [
      'sallyport policy suggest --tenant acme --since 7d > acme.yaml',
      'sallyport policy suggest --tenant acme --since 24h --include-refused --min-sandboxes 2 --json',
    ],
    options: [
      ...pastOptions(),
      option('--include-refused', 'also what was refused, not only what was let out or only reported'),
      repeatable('--include <kind>', `also destinations of a doubtful kind: ${DOUBT_KINDS.join(', ')}; repeatable`),
      option('--min-sandboxes <count>', 'leave out what fewer sandboxes asked for').default('1'),
      option('--wildcards <count>', 'so many names below one domain become a wildcard; 0 for never').default('3'),
      option('--no-sets', 'name hosts, and no sets such as `@github`'),
    ],
    json: true,
    run: suggest,
  })
}

async function suggest(terminal: Terminal, options: SuggestOptions): Promise<ExitCode> {
  const settings = {
    include: readKinds(options.include ?? []),
    minSandboxes: readCount('--min-sandboxes', options.minSandboxes),
    wildcardFrom: readCount('--wildcards', options.wildcards),
    presets: options.sets !== false,
  }
  const loaded = await configOfLog(terminal, options)
  const seen = new SeenDestinations()
  const { malformed } = await eachPastDecision(
    terminal,
    options.audit ?? loaded?.config.audit.path ?? '',
    options,
    (past) => {
      if (past.outcome !== 'refused' || options.includeRefused === true) seen.add(past)
      return undefined
    },
  )
  if (malformed > 0) terminal.err(`${malformed} lines hold a target that no gateway writes, and do not count`)
  if (seen.uncounted > 0) {
    terminal.err(
      'sallyport: the log holds more destinations than are told apart; narrow it by `--since`, `--until`, `--tenant` or `--sandbox`',
    )
    return EXIT.failed
  }
  const sets: EntrySets | undefined = loaded && compileRuleset(loaded.config, loaded.machineSets, []).sets
  const suggested = seen.suggest({ ...settings, ...(sets && { sets }) })
  if (suggested.total.decisions === 0) terminal.err('no decision was found: the policy denies all')
  terminal.out(options.json === true ? json(asData(suggested)) : asDocument(suggested, options.tenant))
  return EXIT.done
}

function readKinds(texts: readonly string[]): ReadonlySet<DoubtKind> {
  const known = DOUBT_KINDS.filter((kind) => texts.includes(kind))
  const unknown = texts.find((text) => !known.some((kind) => kind === text))
  if (unknown === undefined) return new Set(known)
  throw new UsageError(`\`--include ${unknown.slice(0, 40)}\`: there are ${DOUBT_KINDS.join(', ')}`)
}

function readCount(name: string, text: string): number {
  if (/^\d{1,6}$/.test(text)) return Number(text)
  throw new UsageError(`\`${name}\` is a whole number`)
}

function asData({ allowedHosts, entries, leftOut, total }: SeenPolicy): object {
  return { policy: { kind: 'static', allowedHosts }, entries, leftOut, total }
}

/** A policy document: what is beside the policy are comments. Names of sandboxes and tenants are anybody's text, so they are quoted. */
function asDocument({ allowedHosts, entries, leftOut, total }: SeenPolicy, tenant: string | undefined): string {
  const showsTenants = tenant === undefined
  const heading = [
    'entry',
    'decisions',
    'only reported',
    'refused',
    'sandboxes',
    ...(showsTenants ? ['tenants'] : []),
    'first seen',
    'last seen',
  ]
  const row = (name: string, one: Sightings): readonly string[] => [
    name,
    String(one.decisions),
    String(one.reported),
    String(one.refused),
    namesText(one.sandboxes),
    ...(showsTenants ? [namesText(one.tenants)] : []),
    one.firstSeen,
    one.lastSeen,
  ]
  const comment = (text: string): string =>
    text
      .split('\n')
      .map((line) => `# ${line}`.trimEnd())
      .join('\n')
  const of = tenant === undefined ? '' : ` of tenant ${quoted(tenant)}`
  const period = total.decisions === 0 ? '' : `, ${total.firstSeen} to ${total.lastSeen}`
  return [
    comment(`The shortest policy for ${total.decisions} decisions${of}${period}.`),
    comment('A sandbox writes what it likes into this log, by asking for it: read every line before you use it.'),
    ...(entries.length === 0 ? [] : ['#', comment(table([heading, ...entries.map((one) => row(one.entry, one))]))]),
    ...(leftOut.length === 0
      ? []
      : [
          '#',
          comment(
            `Left out:\n${table([['destination', ...heading.slice(1), 'why'], ...leftOut.map((one) => [...row(one.destination, one), whyText(one)])])}`,
          ),
        ]),
    'kind: static',
    allowedHosts.length === 0 ? 'allowedHosts: []' : 'allowedHosts:',
    ...entries.flatMap(({ entry, opens, warnings }) => [
      ...warnings.map(({ why }) => `  # warning: ${why}`),
      ...(opens.length === 0 ? [] : [`  # also opens: ${opens.join(', ')}`]),
      `  - '${entry}'`,
    ]),
  ].join('\n')
}

function namesText({ count, atLeast, names }: Sightings['sandboxes']): string {
  const shown = names.slice(0, 2).map((name) => quoted(name).slice(1, -1))
  const more = count > shown.length ? ', …' : ''
  return count === 0 ? 'none' : `${count}${atLeast ? ' or more' : ''} (${shown.join(', ')}${more})`
}

function whyText({ why }: LeftOut): string {
  return why
    .map(({ kind, why: text }) => `${text}${DOUBT_KINDS.some((one) => one === kind) ? ` (--include ${kind})` : ''}`)
    .join('; ')
}
