/** Reads a YAML or JSON document that a command is given. */
import { readFile } from 'node:fs/promises'
import { whyUnreadable } from '../unreadable.ts'
import { yaml } from '../yaml.ts'
import { UsageError, type Terminal } from './terminal.ts'

/**
 * The plain value of a file; `-` is standard input.
 * @throws {@link UsageError} when it can't be read, or is neither YAML nor JSON
 */
export async function readDocument(terminal: Terminal, file: string): Promise<unknown> {
  const text = file === '-' ? await terminal.readInput() : await readText(file)
  try {
    return yaml().parse(text, { maxAliasCount: 100 }) as unknown
  } catch (error) {
    const first = error instanceof Error ? (error.message.split('\n')[0] ?? '') : ''
    throw new UsageError(`\`${file}\` is neither YAML nor JSON: ${first.replace(/:$/, '')}`)
  }
}

async function readText(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    throw new UsageError(`\`${file}\` can't be read (${whyUnreadable(error)})`)
  }
}
