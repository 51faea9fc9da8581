/** Where commands get a token from: a file, standard input or the environment; on the command line only when asked, since others can see it there. */
import { readFile } from 'node:fs/promises'
import type { Option } from 'commander'
import { SallyportError } from '../../policies/error.ts'
import { option } from './command.ts'
import { whyUnreadable } from '../unreadable.ts'
import type { Terminal } from './terminal.ts'

/** Options of commands that take a token. */
export interface TokenOptions {
  readonly token?: string
  readonly tokenFile?: string
}

/** No token is longer than 32 KiB. */
const MAX_FILE_BYTES = 64 * 1024

/** `--token` and `--token-file`. */
export function tokenOptions(): readonly Option[] {
  return [
    option('--token-file <file>', 'read the token from a file; `-` for standard input'),
    option('--token <token>', 'the token itself; every process of this machine can see it there'),
  ]
}

/** The token, from the options, `SALLYPORT_TOKEN_FILE` or `SALLYPORT_TOKEN`; `undefined` when there is none. */
export async function readToken(terminal: Terminal, options: TokenOptions): Promise<string | undefined> {
  if (options.token !== undefined) return options.token.trim()
  if (options.tokenFile !== undefined) return readTokenFile(terminal, options.tokenFile)
  const { SALLYPORT_TOKEN_FILE: file, SALLYPORT_TOKEN: token } = terminal.environment
  if (file !== undefined && file !== '') return readTokenFile(terminal, file)
  return token === undefined || token === '' ? undefined : token.trim()
}

async function readTokenFile(terminal: Terminal, file: string): Promise<string> {
  if (file === '-') return onlyLine(await terminal.readInput(), 'standard input')
  try {
    const bytes = await readFile(file)
    if (bytes.length > MAX_FILE_BYTES)
      throw new SallyportError('SALLYPORT_TOKEN_INVALID', `\`${file}\` is too large for a token`)
    return onlyLine(bytes.toString(), file)
  } catch (error) {
    if (error instanceof SallyportError) throw error
    throw new SallyportError(
      'SALLYPORT_TOKEN_INVALID',
      `can't read the token from \`${file}\` (${whyUnreadable(error)})`,
      {
        cause: error,
      },
    )
  }
}

/** `token mint --handle` prints two lines; which of them is meant is not for us to guess. */
function onlyLine(text: string, source: string): string {
  const token = text.trim()
  if (!/[\r\n]/.test(token)) return token
  const message = `\`${source}\` holds several lines; it must hold one token or one handle`
  throw new SallyportError('SALLYPORT_TOKEN_INVALID', message)
}
