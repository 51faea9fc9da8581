/** `sallyport audit`: follows, searches, exports and verifies the audit log. Never writes to it. */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Option } from 'commander'
import { SallyportError } from '../../../policies/index.ts'
import { csvLine } from '../../audit/formats/csv.ts'
import { EVENT_FORMATS, type EventFormat, formatEvent } from '../../audit/formats/format.ts'
import { parseVerifyKeys, type VerifyKey } from '../../audit/key.ts'
import { type LineIndex, openLineIndex } from '../../audit/index/line-index.ts'
import { type AuditFilters, isLookUp } from '../../audit/match.ts'
import { type Found, isCursor, queryAudit } from '../../audit/query.ts'
import { tailAudit } from '../../audit/tail.ts'
import { describeVerification } from '../../audit/verify-text.ts'
import { verifyAudit } from '../../audit/verify.ts'
import { AUDIT_PUBLIC_KEY_FILE } from '../../state/audit-key.ts'
import { whyUnreadable } from '../../unreadable.ts'
import { addCommand, addGroup, configOption, option, repeatable, type CommandHost } from '../command.ts'
import { findConfigFile, loadCommandConfig, loadConfigFile } from '../config-file.ts'
import { auditFilters, filterOptions, type FilterOptions } from '../audit-filters.ts'
import { describeLine } from '../audit-print.ts'
import { json } from '../print.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface ReadOptions extends FilterOptions {
  readonly config?: string
  readonly path?: string
  readonly lines?: string
  readonly follow?: boolean
  readonly limit?: string
  readonly cursor?: string
  readonly index?: boolean
  readonly format?: EventFormat | 'csv'
  readonly json?: true
}

interface VerifyOptions {
  readonly config?: string
  readonly key?: readonly string[]
  readonly anchor?: readonly string[]
  readonly fromSegment?: string
  readonly json?: true
}

/** Adds the commands. */
export function addAuditCommands(host: CommandHost): void {
  const group = addGroup(host, 'audit', 'read and verify the audit log', [
    'sallyport audit tail',
    'sallyport audit query --decision deny --since 1h',
    'sallyport audit verify --config sallyport.yaml',
  ])
  const where = [
    configOption(),
    option('--path <folder>', 'the folder of the log, instead of that of the configuration'),
  ]
  addCommand<ReadOptions>(group, {
    usage: 'tail',
    description: 'print the last lines and every new one',
    examples: ['sallyport audit tail --tenant acme', 'sallyport audit tail --no-follow --lines 50 --json'],
    options: [
      ...where,
      ...filterOptions(),
      option('-n, --lines <count>', 'how many of the last lines').default('10'),
      option('--no-follow', 'end after them'),
    ],
    json: true,
    run: tail,
  })
  addCommand<ReadOptions>(group, {
    usage: 'query',
    description: 'find lines, oldest first',
    examples: [
      'sallyport audit query --decision deny --host example.com --since 2h',
      'sallyport audit query --sandbox sbx_42 --limit 100 --json',
    ],
    options: [
      ...where,
      ...filterOptions(),
      option('--limit <count>', 'at most so many; the cursor for the rest is printed to standard error'),
      option('--cursor <cursor>', 'go on where an earlier query ended'),
      noIndexOption(),
    ],
    json: true,
    run: query,
  })
  addCommand<ReadOptions>(group, {
    usage: 'export',
    description: 'write all lines (or those that the filters leave) for another system',
    examples: [
      'sallyport audit export --since 2026-01-01 > january.jsonl',
      'sallyport audit export --since 24h --format ocsf > events.jsonl',
      'sallyport audit export --format csv --kind decision > decisions.csv',
    ],
    options: [
      ...where,
      ...filterOptions(),
      option('--format <format>', 'native: the lines as they are; ocsf: OCSF 1.8; ecs: Elastic Common Schema')
        .choices([...EVENT_FORMATS, 'csv'])
        .default('native'),
      noIndexOption(),
    ],
    run: exportLines,
  })
  addCommand<VerifyOptions>(group, {
    usage: 'verify [path...]',
    description: 'prove offline that nothing was cut, changed or reordered; exit code 1 with the first fault',
    examples: [
      'sallyport audit verify --config sallyport.yaml',
      'sallyport audit verify /archive/audit --key audit-key.public.jwk',
    ],
    options: [
      configOption(),
      repeatable(
        '--key <file>',
        "public key of the checkpoints (JWK, JWK set or PEM); default: the gateway's own in the state folder",
      ),
      repeatable('--anchor <file>', 'checkpoint lines that were kept elsewhere: each must be in the log'),
      option('--from-segment <number>', 'the first file that is expected, when earlier ones were archived'),
    ],
    json: true,
    run: (terminal, options, ...paths) =>
      verify(
        terminal,
        options,
        paths.flat().filter((path) => path !== undefined),
      ),
  })
}

async function tail(terminal: Terminal, options: ReadOptions): Promise<ExitCode> {
  const lines = tailAudit({
    path: await findLog(terminal, options),
    filters: auditFilters(options),
    lines: wholeNumber('--lines', options.lines ?? '10'),
    follow: options.follow !== false,
    signal: terminal.signal,
  })
  for await (const { line, text } of lines) terminal.out(options.json === true ? text : describeLine(line))
  return EXIT.done
}

async function query(terminal: Terminal, options: ReadOptions): Promise<ExitCode> {
  const limit = options.limit === undefined ? undefined : wholeNumber('--limit', options.limit)
  if (options.cursor !== undefined && !isCursor(options.cursor))
    throw new UsageError(`\`${options.cursor.slice(0, 80)}\` is no cursor: it is what an earlier query printed`)
  let count = 0
  let last = ''
  // One more than is printed, to know whether there is more.
  const atMost = limit === undefined ? undefined : limit + 1
  await eachFound(terminal, options, atMost, ({ line, text, cursor }) => {
    count += 1
    if (count === atMost) {
      terminal.err(`more: --cursor ${last}`)
      return
    }
    terminal.out(options.json === true ? text : describeLine(line))
    if (count === limit) last = cursor()
  })
  return EXIT.done
}

async function exportLines(terminal: Terminal, options: ReadOptions): Promise<ExitCode> {
  const { format = 'native' } = options
  if (format === 'csv') terminal.out(csvLine(undefined))
  await eachFound(terminal, options, undefined, ({ line, text }) =>
    terminal.out(format === 'csv' ? csvLine(line) : formatEvent(format, line, text)),
  )
  return EXIT.done
}

async function eachFound(
  terminal: Terminal,
  options: ReadOptions,
  limit: number | undefined,
  take: (found: Found) => void,
): Promise<void> {
  const path = await findLog(terminal, options)
  const filters: AuditFilters = auditFilters(options)
  const { cursor } = options
  const index = isLookUp(filters) ? await indexOf(terminal, path, options) : undefined
  try {
    const found = queryAudit({
      path,
      filters,
      // A limited query ends early; one that gives back half the log is faster by reading it.
      index: limit !== undefined || index?.hasFew(filters) === true ? index : undefined,
      signal: terminal.signal,
      ...(cursor === undefined ? {} : { cursor }),
      ...(limit === undefined ? {} : { limit }),
    })
    for await (const one of found) take(one)
  } finally {
    index?.close()
  }
}

async function indexOf(terminal: Terminal, path: string, options: ReadOptions): Promise<LineIndex | undefined> {
  if (options.index === false || statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true) return undefined
  const opened = await openLineIndex(path, terminal.signal)
  if (opened.ok) return opened.index
  terminal.err(`no index (${opened.why}): all files are read`)
  return undefined
}

function noIndexOption(): Option {
  return option('--no-index', 'read all files instead of looking lines up')
}

async function findLog(
  terminal: Terminal,
  options: { readonly config?: string; readonly path?: string },
): Promise<string> {
  if (options.path !== undefined) return options.path
  return (await loadCommandConfig(terminal, options.config)).config.audit.path
}

async function verify(terminal: Terminal, options: VerifyOptions, given: readonly string[]): Promise<ExitCode> {
  const file = given.length === 0 || options.config !== undefined ? findConfigFile(terminal, options.config) : undefined
  const config = file === undefined ? undefined : (await loadConfigFile(terminal, file)).config
  const paths = given.length > 0 ? given : config === undefined ? [] : [config.audit.path]
  if (paths.length === 0)
    throw new UsageError('name the folder or files of the log, or a configuration by `--config FILE`')
  const keys = readKeys(options.key ?? stateKeyFile(config?.state))
  const anchors = (options.anchor ?? []).flatMap((anchor) =>
    readFile(anchor)
      .split('\n')
      .filter((line) => line !== ''),
  )
  const verification = await verifyAudit({
    paths,
    ...(keys === undefined ? {} : { keys }),
    ...(anchors.length === 0 ? {} : { anchors }),
    ...(options.fromSegment === undefined ? {} : { fromSegment: wholeNumber('--from-segment', options.fromSegment) }),
    signal: terminal.signal,
  })
  terminal.out(options.json === true ? json(verification) : describeVerification(verification).join('\n'))
  return verification.ok ? EXIT.done : EXIT.failed
}

function stateKeyFile(state: string | undefined): readonly string[] | undefined {
  const file = state === undefined ? undefined : join(state, AUDIT_PUBLIC_KEY_FILE)
  return file !== undefined && existsSync(file) ? [file] : undefined
}

function readKeys(files: readonly string[] | undefined): readonly VerifyKey[] | undefined {
  return files?.flatMap((file) => parseVerifyKeys(readFile(file), file))
}

function readFile(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `\`${file}\` can't be read (${whyUnreadable(error)})`, {
      cause: error,
    })
  }
}

function wholeNumber(name: string, text: string): number {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : 0
  if (value < 1) throw new UsageError(`\`${name}\` is a whole number of at least 1`)
  return value
}
