/** Which configuration a command works on: the one named, the one of the environment, or the development set-up of this folder. */
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { loadConfig } from '../config/load.ts'
import type { Config } from '../config/schema.ts'
import { readMachineSets } from '../policy/machine-sets.ts'
import { UsageError, type Terminal } from './terminal.ts'

/** Where `sallyport serve` without a configuration keeps everything. */
export const DEVELOPMENT_FOLDER = '.sallyport'

/** The configuration inside {@link DEVELOPMENT_FOLDER}. */
export const DEVELOPMENT_CONFIG = `${DEVELOPMENT_FOLDER}/sallyport.yaml`

/** A configuration, where it came from, and what this machine's npm and apt use. */
export interface Loaded {
  readonly config: Config
  readonly file: string
  readonly machineSets: Readonly<Record<string, readonly string[]>>
}

/** The file that a command means; `undefined` when there is none. */
export function findConfigFile(terminal: Terminal, named: string | undefined): string | undefined {
  const file = named ?? terminal.environment['SALLYPORT_CONFIG']
  if (file !== undefined && file !== '') return file
  return existsSync(resolve(DEVELOPMENT_CONFIG)) ? DEVELOPMENT_CONFIG : undefined
}

/**
 * Reads the configuration of a command.
 * @throws ConfigError with every fault; {@link UsageError} when there is no file to read
 */
export async function loadCommandConfig(terminal: Terminal, named: string | undefined): Promise<Loaded> {
  const file = findConfigFile(terminal, named)
  if (file === undefined) {
    throw new UsageError(
      'no configuration: name one with `--config FILE`, or start `sallyport serve` once for the development set-up',
    )
  }
  return loadConfigFile(terminal, file)
}

/** Reads a configuration file with the environment's overrides and this machine's sets. */
export async function loadConfigFile(terminal: Terminal, file: string): Promise<Loaded> {
  const { sets: machineSets } = readMachineSets()
  const config = await loadConfig({ file, environment: terminal.environment, machineSets: { ...machineSets } })
  return { config, file, machineSets: { ...machineSets } }
}
