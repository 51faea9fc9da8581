/** `sallyport env`: the environment for the clients of a token, in the format of a shell, a dotenv file, Docker or JSON. */
import { parseCompact } from '../../tokens/compact.ts'
import { clientNotes, clientVariables, type ClientSettings, type Variables } from '../client-environment.ts'
import { addCommand, configOption, option, type CommandHost } from '../command.ts'
import { findConfigFile, loadConfigFile } from '../config-file.ts'
import { readToken, tokenOptions, type TokenOptions } from '../read-token.ts'
import { quoteShell } from '../quote-shell.ts'
import { EXIT, UsageError, type Terminal } from '../terminal.ts'

interface EnvOptions extends TokenOptions {
  readonly config?: string
  readonly proxy?: string
  readonly user?: string
  readonly ca?: string
  readonly format: 'sh' | 'dotenv' | 'json' | 'docker'
  readonly bound?: true
  readonly notes: boolean
  readonly json?: true
}

/** Adds the command. */
export function addEnvCommand(host: CommandHost): void {
  addCommand<EnvOptions>(host, {
    usage: 'env',
    description: 'print the variables that make clients go through the gateway',
    examples: [
      'sallyport env --token-file sandbox.token > sandbox.sh && . ./sandbox.sh',
      'sallyport env --token-file sandbox.token --format docker > sandbox.env && docker run --env-file sandbox.env …',
      'sallyport env --bound --proxy http://127.0.0.1:3128',
    ],
    options: [
      configOption(),
      ...tokenOptions(),
      option(
        '--proxy <url>',
        'the gateway as clients reach it; default: $SALLYPORT_PROXY, else where the configuration listens, else http://127.0.0.1:3128',
      ),
      option('--user <name>', "user name beside the token; default: the token's sandbox"),
      option('--ca <file>', 'PEM bundle that clients trust; it must hold the usual authorities too'),
      option('--bound', 'for a bound listener: no credentials'),
      option('--format <format>', 'how to print').choices(['sh', 'dotenv', 'json', 'docker']).default('sh'),
      option('--no-notes', 'leave out the notes on single clients'),
    ],
    json: true,
    run: printEnvironment,
  })
}

async function printEnvironment(terminal: Terminal, options: EnvOptions): Promise<0> {
  const token = options.bound === true ? undefined : await readToken(terminal, options)
  if (token === undefined && options.bound !== true) {
    throw new UsageError(
      'no token: use `--token-file FILE` or $SALLYPORT_TOKEN, or `--bound` for a listener that needs none',
    )
  }
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token))
    throw new UsageError('a token has no spaces and no control characters')
  const settings: ClientSettings = {
    proxy: parseProxy(
      options.proxy ?? terminal.environment['SALLYPORT_PROXY'] ?? (await configuredProxy(terminal, options.config)),
    ),
    token,
    user: options.user ?? sandboxOf(token),
    caFile: options.ca,
  }
  const notes = options.notes ? clientNotes(settings) : []
  terminal.out(render(options.json === true ? 'json' : options.format, clientVariables(settings), notes))
  return EXIT.done
}

function parseProxy(text: string): URL {
  const url = URL.parse(text.includes('://') ? text : `http://${text}`)
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:'))
    throw new UsageError(`\`${text}\` is not the URL of a proxy; write \`http://127.0.0.1:3128\``)
  if (url.username !== '' || url.password !== '')
    throw new UsageError('the URL of the proxy must not hold credentials; they come from the token')
  return url
}

/** Where the configuration listens; a listener on every address is reached on this machine. */
async function configuredProxy(terminal: Terminal, named: string | undefined): Promise<string> {
  const file = findConfigFile(terminal, named)
  if (file === undefined) return 'http://127.0.0.1:3128'
  const { config } = await loadConfigFile(terminal, file)
  const address = config.listen.proxy.find((candidate) => candidate.kind === 'tcp')
  if (address?.kind !== 'tcp')
    throw new UsageError(
      'the gateway listens on unix sockets only, which clients can not be told by variables; name a `--proxy`',
    )
  const host = address.host === '0.0.0.0' ? '127.0.0.1' : address.host === '::' ? '::1' : address.host
  const scheme = config.listen.tls === undefined ? 'http' : 'https'
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${address.port}`
}

/** The sandbox of the token, when it is fit for a user name; the gateway takes any. */
function sandboxOf(token: string | undefined): string {
  const unverified = token === undefined ? undefined : parseCompact(token)
  const sandbox = unverified?.ok === true ? unverified.value.claims['sub'] : undefined
  return typeof sandbox === 'string' && /^[A-Za-z0-9_-]{1,64}$/.test(sandbox) ? sandbox : 'sandbox'
}

function render(format: EnvOptions['format'], variables: Variables, notes: readonly string[]): string {
  if (format === 'json') return JSON.stringify({ variables, notes }, null, 2)
  const quote = { sh: quoteShell, dotenv: quoteDotenv, docker: (value: string) => value }[format]
  const prefix = format === 'sh' ? 'export ' : ''
  const lines = Object.entries(variables).map(([name, value]) => `${prefix}${name}=${quote(value)}`)
  return [...lines, ...notes.map((note) => `# ${note}`)].join('\n')
}

/** Single quotes keep a value as it is; one that holds them needs double quotes with escapes. */
function quoteDotenv(value: string): string {
  return value.includes("'") ? `"${value.replace(/["\\$`]/g, String.raw`\$&`)}"` : `'${value}'`
}
