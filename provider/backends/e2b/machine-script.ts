/** Runs one of our scripts in a machine to its end, and reads the lines that it prints. All of it is untrusted, and bounded. */
import { randomBytes } from 'node:crypto'
import { lost } from '../../worker-client/exchange.ts'
import { malformed } from '../../worker-client/lines.ts'
import type { Machine } from './e2b-api.ts'
import { forgetOutput } from './forget-output.ts'
import { shellLine } from './shell-words.ts'

/** What one run is given. */
export interface ScriptRun {
  readonly script: string
  /** After the mark. */
  readonly words: readonly string[]
  readonly envs?: Readonly<Record<string, string>>
  /** As root; as the template's user by default. */
  readonly isRoot?: boolean
  readonly signal?: AbortSignal | undefined
  /** Characters of all lines; 1 MiB by default. */
  readonly maxLength?: number
}

const DEFAULT_MAX_LENGTH = 1024 * 1024
const TIMEOUT_MS = 60_000

/**
 * Resolves to its lines, the last of which is `ok` or `fault CODE`.
 * @throws SandboxError `SALLYPORT_SANDBOX_CONNECTION_LOST` when there is no such end
 */
export async function runScript(machine: Machine, run: ScriptRun): Promise<readonly string[]> {
  const { script, words, envs, isRoot = false, signal, maxLength = DEFAULT_MAX_LENGTH } = run
  const mark = randomBytes(12).toString('hex')
  const line = shellLine(['perl', '-e', script, '--', mark, ...words])
  if (line === undefined) throw malformed('what is asked for is too long')
  signal?.throwIfAborted()
  const said = { text: '', isTooLong: false }
  const over = new AbortController()
  try {
    const handle = await machine.commands.run(line, {
      background: true,
      timeoutMs: TIMEOUT_MS,
      signal: signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]),
      ...(envs !== undefined && { envs: { ...envs } }),
      ...(isRoot && { user: 'root' }),
      onStdout: (piece) => {
        said.text += piece
        if (said.text.length <= maxLength) return
        said.isTooLong = true
        said.text = ''
        over.abort()
      },
    })
    forgetOutput(handle)
    await handle.wait()
  } catch (error) {
    signal?.throwIfAborted()
    if (!said.isTooLong && !hasEnd(said.text)) throw lost(error)
  }
  const { text, isTooLong } = said
  if (isTooLong) throw malformed('what is printed inside is too long')
  const begin = text.indexOf(`\x1e${mark}\n`)
  // Whatever a profile of the image prints comes before.
  const lines = begin < 0 ? [] : text.slice(begin + mark.length + 2).split('\n')
  if (lines.pop() !== '' || !/^(ok|fault [A-Za-z0-9_]{1,40})$/.test(lines.at(-1) ?? ''))
    throw lost(new Error('a script inside ended without a word'))
  return lines
}

function hasEnd(text: string): boolean {
  return /\n(ok|fault \w+)\n$/.test(text)
}

/** Words in hexadecimal, so that every byte arrives. */
export function hexOf(raw: string): string {
  return Buffer.from(raw, 'latin1').toString('hex')
}

/** A path or another text of a line. */
export function decoded(text: string): string {
  return text.replace(/%([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)))
}
