/** How single values of a configuration file are spelled: listen addresses, durations, sizes, URLs. Pure; opens nothing. */
import { isIP } from 'node:net'
import { z } from 'zod'

/** Where to listen: an address and a port (0 picks a free one), or the path of a unix socket. */
export type ListenAddress =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

const SECONDS = /^\d+(\.\d+)?(ms|s|m|h)?$/
const BYTES = /^\d+(\.\d+)? ?(B|[KMGT]i?B)?$/

/** A check inside a schema says what is wrong, and what would be right. */
export function complain(context: z.core.$RefinementCtx, message: string, hint?: string, path?: PropertyKey[]): void {
  context.issues.push({
    code: 'custom',
    message,
    input: undefined,
    ...(path === undefined ? {} : { path }),
    ...(hint === undefined ? {} : { params: { hint } }),
  })
}

/** {@link complain} where a value has to be given back: to be returned, never called for its effect alone. */
function refuse(context: z.core.$RefinementCtx, message: string, hint?: string): never {
  complain(context, message, hint)
  return z.NEVER
}

/** `127.0.0.1:3128`, `[::1]:3128`, `localhost:3128` or `unix:/path`. A name other than `localhost` is refused: where a gateway listens must not hang on DNS. */
export function listenAddress(): z.ZodType<ListenAddress, string> {
  return z
    .string()
    .min(1)
    .transform((text, context): ListenAddress => parseListenAddress(text) ?? refuseListen(text, context))
}

/** Seconds, as a number or with a unit: `10`, `0.5`, `10s`, `500ms`, `5m`, `1h`. The value is in seconds. */
export function seconds(least: number, most: number): z.ZodType<number, number | string> {
  return z
    .union([z.number(), z.string().meta({ pattern: SECONDS.source })], {
      error: (issue) => expectedSeconds(issue.input),
    })
    .transform((value, context) => {
      if (typeof value === 'string' && !SECONDS.test(value)) return refuse(context, expectedSeconds(value))
      const result = typeof value === 'number' ? value : secondsOf(value)
      if (result >= least && result <= most) return result
      return refuse(context, `must be between ${least} and ${most} seconds, found \`${String(value)}\``)
    })
}

/** The same outside of a file, such as in an option of a command, and days (`7d`); `undefined` for what is no time. */
export function parseSeconds(text: string): number | undefined {
  const days = /^(\d{1,5})d$/.exec(text)?.[1]
  if (days !== undefined) return Number(days) * 86_400
  return SECONDS.test(text) ? secondsOf(text) : undefined
}

/** Bytes, as a whole number or with a unit: `1048576`, `64MiB`, `5GiB`, `1GB`. The value is in bytes. */
export function bytes(least: number): z.ZodType<number, number | string> {
  return z
    .union([z.number(), z.string().meta({ pattern: BYTES.source })], {
      error: (issue) => expectedBytes(issue.input),
    })
    .transform((value, context) => {
      if (typeof value === 'string' && !BYTES.test(value)) return refuse(context, expectedBytes(value))
      const result = typeof value === 'number' ? value : bytesOf(value)
      if (Number.isSafeInteger(result) && result >= least) return result
      return refuse(context, `must be a whole number of at least ${least} bytes, found \`${String(value)}\``)
    })
}

/** An `https:` URL; `http:` is only accepted to this machine, or where the operator says that it is meant. */
export function checkUrl(
  text: string,
  allowPlain: boolean,
): { readonly message: string; readonly hint?: string } | undefined {
  const url = URL.parse(text)
  if (url === null) return { message: `${found(text)} is not a URL` }
  if (url.username !== '' || url.password !== '') return { message: 'a URL here must not carry credentials' }
  if (url.protocol === 'https:') return undefined
  if (url.protocol !== 'http:') return { message: `\`${url.protocol}\` is not served here; use https` }
  if (allowPlain || isLoopbackHost(url.hostname)) return undefined
  return {
    message: `\`${text}\` is fetched without TLS, so whoever sits between decides what it says`,
    hint: `https://${url.host}${url.pathname === '/' ? '' : url.pathname}`,
  }
}

/** What stands in the file, in a few words; text is cut, since a secret may have slipped into the wrong place. */
export function found(input: unknown): string {
  if (input === undefined) return 'nothing'
  if (input === null) return 'an empty value'
  if (Array.isArray(input)) return 'a list'
  if (typeof input === 'object') return 'a section'
  const text = typeof input === 'string' ? input : typeof input === 'number' ? input.toString() : JSON.stringify(input)
  return `\`${text.length > 40 ? `${text.slice(0, 24)}…` : text}\``
}

/** The address as it is written in a file. */
export function listenText(address: ListenAddress): string {
  if (address.kind === 'unix') return `unix:${address.path}`
  return `${address.host.includes(':') ? `[${address.host}]` : address.host}:${address.port}`
}

function parseListenAddress(text: string): ListenAddress | undefined {
  if (text.startsWith('unix:')) {
    const path = text.slice('unix:'.length)
    return path === '' || path.includes('\0') ? undefined : { kind: 'unix', path }
  }
  const match = /^(?:\[(?<six>[0-9a-fA-F:.]+)\]|(?<four>[^:[\]]+)):(?<port>\d{1,5})$/.exec(text)
  const port = Number(match?.groups?.['port'])
  if (match === null || port > 65535) return undefined
  const six = match.groups?.['six']
  if (six !== undefined) return isIP(six) === 6 ? { kind: 'tcp', host: six, port } : undefined
  const four = match.groups?.['four'] ?? ''
  if (four === 'localhost') return { kind: 'tcp', host: '127.0.0.1', port }
  return isIP(four) === 4 ? { kind: 'tcp', host: four, port } : undefined
}

function refuseListen(text: string, context: z.core.$RefinementCtx): never {
  const port = /^[:*]*(\d{1,5})$/.exec(text)?.[1]
  const message = `\`${text}\` is not an address to listen on; write \`address:port\` or \`unix:/path\``
  return refuse(context, message, port === undefined ? undefined : `127.0.0.1:${port}`)
}

function isLoopbackHost(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

function expectedSeconds(input: unknown): string {
  return `expected seconds, found ${found(input)}; write \`10\`, \`10s\`, \`500ms\`, \`5m\` or \`1h\``
}

function expectedBytes(input: unknown): string {
  return `expected a size, found ${found(input)}; write bytes or \`64MiB\`, \`5GiB\`, \`1GB\``
}

function secondsOf(text: string): number {
  const factor = { ms: 0.001, s: 1, m: 60, h: 3600 }[/[a-z]+$/.exec(text)?.[0] ?? 's'] ?? 1
  return Number.parseFloat(text) * factor
}

function bytesOf(text: string): number {
  const unit = /[A-Za-z]+$/.exec(text)?.[0] ?? 'B'
  const power = 'BKMGT'.indexOf(unit.charAt(0))
  return Number.parseFloat(text) * (unit.includes('i') ? 1024 : 1000) ** power
}
