/** `sallyport token revoke`: writes a revocation into the state folder; a running gateway obeys within a second. */
import type { RevocationRule } from '../../state/revocation-rules.ts'
import { openState } from '../../state/state.ts'
import { readInstant } from '../audit-filters.ts'
import { addCommand, configOption, option, type CommandHost } from '../command.ts'
import { loadCommandConfig } from '../config-file.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface RevokeOptions {
  readonly config?: string
  readonly sandbox?: string
  readonly tenant?: string
  readonly issuedBefore?: string
}

/** Adds the command. */
export function addRevokeCommand(host: CommandHost): void {
  addCommand<RevokeOptions>(host, {
    usage: 'revoke [jti]',
    description:
      'revoke one token by its id (`jti`), or all tokens of a sandbox or tenant; open tunnels are cut within a second',
    examples: [
      'sallyport token revoke --config sallyport.yaml 5f0c1f6e-…',
      'sallyport token revoke --sandbox sbx_42',
      'sallyport token revoke --tenant acme --issued-before 10m',
    ],
    options: [
      configOption(),
      option('--sandbox <id>', 'every token of this sandbox'),
      option('--tenant <name>', 'every token of this tenant'),
      option(
        '--issued-before <time>',
        'with --sandbox or --tenant: only tokens older than this, such as `10m`, or issued before an instant in UTC',
      ),
    ],
    run: revoke,
  })
}

async function revoke(terminal: Terminal, options: RevokeOptions, tokenId?: string): Promise<ExitCode> {
  const [rule, what] = readRule(options, tokenId)
  const { config } = await loadCommandConfig(terminal, options.config)
  const state = await openState(config.state)
  try {
    await state.revocations.revoke(rule)
  } finally {
    state.close()
  }
  terminal.out(`${what} revoked; a running gateway obeys within a second`)
  return EXIT.done
}

function readRule(options: RevokeOptions, tokenId: string | undefined): readonly [RevocationRule, string] {
  const { sandbox, tenant } = options
  const given = [tokenId, sandbox, tenant].filter((value) => value !== undefined)
  if (given.length !== 1) throw new UsageError('name exactly one of a token id, `--sandbox ID` and `--tenant NAME`')
  if (given[0] === '') throw new UsageError('the name must not be empty')
  if (tokenId !== undefined) {
    if (options.issuedBefore !== undefined)
      throw new UsageError('`--issued-before` goes with `--sandbox` or `--tenant`')
    if (/^[^.]+\.[^.]+\.[^.]*$/.test(tokenId) && tokenId.startsWith('ey'))
      throw new UsageError('this is a whole token; its id is needed (`jti`, see `sallyport token inspect`)')
    return [{ tokenId }, `token ${tokenId} is`]
  }
  const issuedBeforeMs = options.issuedBefore === undefined ? undefined : readInstant(options.issuedBefore)
  const when = issuedBeforeMs === undefined ? {} : { issuedBeforeMs }
  return sandbox === undefined
    ? [{ tenant: tenant ?? '', ...when }, `tokens of tenant ${tenant ?? ''} are`]
    : [{ sandbox, ...when }, `tokens of sandbox ${sandbox} are`]
}
