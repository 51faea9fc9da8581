/** The caller's variables, kept in the machine for a process that attaches later: commands there have them anyway. No token is among them. */
import type { Machine } from './e2b-api.ts'
import type { MachineFolders } from './prepare-machine.ts'
import { lost } from '../../worker-client/exchange.ts'

const NAME = 'environment.json'
const MAX_LENGTH = 1024 * 1024

/** Writes them. */
export async function keepEnvironment(
  machine: Machine,
  { spool }: MachineFolders,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  try {
    await machine.files.write(`${spool}/${NAME}`, JSON.stringify(env))
  } catch (error) {
    throw lost(error)
  }
}

/** None where they can't be read: a command may have changed them. */
export async function keptEnvironment(
  machine: Machine,
  { spool }: MachineFolders,
): Promise<Readonly<Record<string, string>>> {
  try {
    const text = await machine.files.read(`${spool}/${NAME}`)
    const value = text.length > MAX_LENGTH ? {} : (JSON.parse(text) as unknown)
    return Object.fromEntries(
      Object.entries(value ?? {}).filter(
        (entry): entry is [string, string] => typeof entry[1] === 'string' && !/[=\0]/.test(entry[0]),
      ),
    )
  } catch {
    return {}
  }
}
