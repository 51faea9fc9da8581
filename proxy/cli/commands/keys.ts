/** `sallyport keys`: the gateway's own keys in its state folder. Prints no private key. */
import { openKeys, type OwnKey } from '../../tokens/keys.ts'
import { addCommand, addGroup, configOption, option, type CommandHost } from '../command.ts'
import { loadCommandConfig } from '../config-file.ts'
import { instant, json, table } from '../print.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface KeysOptions {
  readonly config?: string
  readonly state?: string
  readonly algorithm?: 'ES256' | 'EdDSA'
  readonly json?: true
}

/** Adds the commands. */
export function addKeysCommands(host: CommandHost): void {
  const group = addGroup(host, 'keys', "the gateway's own keys, for tokens from `sallyport token mint`", [
    'sallyport keys generate --config sallyport.yaml',
    'sallyport keys rotate --config sallyport.yaml',
  ])
  const where = [configOption(), option('--state <folder>', 'the state folder, instead of that of the configuration')]
  const algorithm = option(
    '--algorithm <algorithm>',
    'default: what the issuer with `stateKeys` uses, else ES256',
  ).choices(['ES256', 'EdDSA'])
  addCommand<KeysOptions>(group, {
    usage: 'generate',
    description: 'make the first key',
    examples: ['sallyport keys generate --config sallyport.yaml'],
    options: [...where, algorithm],
    json: true,
    run: (terminal, options) => makeKey(terminal, options, true),
  })
  addCommand<KeysOptions>(group, {
    usage: 'list',
    description: 'list the keys, newest first',
    examples: ['sallyport keys list --config sallyport.yaml'],
    options: where,
    json: true,
    run: listKeys,
  })
  addCommand<KeysOptions>(group, {
    usage: 'rotate',
    description: 'make a key that signs from now on; older ones verify until they are removed',
    examples: ['sallyport keys rotate --config sallyport.yaml'],
    options: [...where, algorithm],
    json: true,
    run: (terminal, options) => makeKey(terminal, options, false),
  })
  addCommand<KeysOptions>(group, {
    usage: 'remove <kid>',
    description: 'forget a key: what it signed is refused from now on',
    examples: ['sallyport keys remove 0123456789abcdef --config sallyport.yaml'],
    options: where,
    run: removeKey,
  })
}

async function makeKey(terminal: Terminal, options: KeysOptions, first: boolean): Promise<ExitCode> {
  const { state, algorithm } = await findState(terminal, options)
  const keys = await openKeys(state)
  if (first && keys.list().length > 0) {
    terminal.err('sallyport: there is a key already; `sallyport keys rotate` makes one that follows it')
    return EXIT.failed
  }
  const key = await keys.rotate(options.algorithm ?? algorithm)
  terminal.out(options.json === true ? json(shown(key)) : `${key.kid} signs from now on (${key.algorithm})`)
  return EXIT.done
}

async function listKeys(terminal: Terminal, options: KeysOptions): Promise<ExitCode> {
  const keys = (await openKeys((await findState(terminal, options)).state)).list()
  if (options.json === true) terminal.out(json(keys.map(shown)))
  else if (keys.length === 0) terminal.out('no keys; `sallyport keys generate` makes the first')
  else {
    const rows = keys.map((key) => [
      key.kid,
      key.algorithm,
      instant(key.createdAtMs),
      key.isSigning ? 'signs' : 'verifies only',
    ])
    terminal.out(table([['kid', 'algorithm', 'created', 'use'], ...rows]))
  }
  return EXIT.done
}

async function removeKey(terminal: Terminal, options: KeysOptions, kid = ''): Promise<ExitCode> {
  const keys = await openKeys((await findState(terminal, options)).state)
  const isSigning = keys.list().some((key) => key.kid === kid && key.isSigning)
  if (await keys.remove(kid)) {
    terminal.out(`${kid} is removed; a running gateway refuses its tokens within seconds, and cuts what they have open`)
    if (isSigning)
      terminal.err('it was the key that signs: no token can be minted until `sallyport keys rotate` makes another')
    return EXIT.done
  }
  terminal.err(`sallyport: there is no key \`${kid.slice(0, 64)}\`; \`sallyport keys list\` names them`)
  return EXIT.failed
}

async function findState(
  terminal: Terminal,
  options: KeysOptions,
): Promise<{ readonly state: string; readonly algorithm: 'ES256' | 'EdDSA' }> {
  if (options.state !== undefined && options.config !== undefined)
    throw new UsageError('`--state` and `--config` exclude each other')
  if (options.state !== undefined) return { state: options.state, algorithm: 'ES256' }
  const { config } = await loadCommandConfig(terminal, options.config)
  const own = config.issuers.find((issuer) => issuer.stateKeys === true)
  return { state: config.state, algorithm: own === undefined || own.algorithms.includes('ES256') ? 'ES256' : 'EdDSA' }
}

function shown(key: OwnKey): object {
  return { kid: key.kid, algorithm: key.algorithm, createdAt: instant(key.createdAtMs), signs: key.isSigning }
}
