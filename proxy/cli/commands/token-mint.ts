/** `sallyport token mint`: signs a token with the gateway's own key, or with one from a file. */
import { readFile } from 'node:fs/promises'
import type { EgressPolicyData } from '../../../policies/index.ts'
import { SallyportError } from '../../../policies/index.ts'
import type { Config, IssuerConfig } from '../../config/schema.ts'
import { parseSeconds } from '../../config/values.ts'
import { compileRuleset } from '../../ruleset.ts'
import { openHandles } from '../../state/handles.ts'
import { systemClock } from '../../clock.ts'
import { ADMIN_SCOPES, mintAdminToken } from '../../tokens/admin-token.ts'
import { openKeys } from '../../tokens/keys.ts'
import { mintToken } from '../../tokens/mint.ts'
import { readSigningKey, secretSigningKey, type SigningKey } from '../../tokens/signing-key.ts'
import { whyUnreadable } from '../../unreadable.ts'
import { addCommand, configOption, option, repeatable, type CommandHost } from '../command.ts'
import { loadCommandConfig } from '../config-file.ts'
import { instant, json } from '../print.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface MintOptions {
  readonly config?: string
  readonly sandbox?: string
  readonly tenant?: string
  readonly allow?: readonly string[]
  readonly deny?: readonly string[]
  readonly allowAll?: true
  readonly policy?: string
  readonly ttl: string
  readonly issuer?: string
  readonly key?: string
  readonly bindIp?: string
  readonly bindCertificate?: string
  readonly handle?: true
  readonly admin?: true
  readonly scope?: readonly string[]
  readonly name?: string
  readonly json?: true
}

/** Adds the command. */
export function addMintCommand(host: CommandHost): void {
  addCommand<MintOptions>(host, {
    usage: 'mint',
    description: 'mint a token; without --allow, --allow-all or --policy it allows nothing',
    examples: [
      'sallyport token mint --sandbox sbx_42 --tenant acme --allow api.github.com --allow "@pypi" --ttl 15m',
      'sallyport token mint --sandbox sbx_42 --policy build --handle --json',
      'sallyport token mint --admin --scope read --scope policy --name alice   # for the control API, signed by the key of the gateway',
    ],
    options: [
      configOption(),
      option('--sandbox <id>', 'the sandbox that it is for'),
      option('--tenant <name>', 'the tenant that the sandbox belongs to'),
      repeatable(
        '--allow <entry>',
        'what it may reach, such as `api.github.com`, `*.example.com:8443`, `@pypi`; repeatable',
      ),
      repeatable('--deny <entry>', 'what it may not reach all the same; repeatable'),
      option('--allow-all', 'everything that the operator and the tenant allow'),
      option('--policy <name>', 'a policy of `policy.named`'),
      option('--ttl <time>', 'how long it lives, at most 24h').default('1h'),
      option('--issuer <issuer>', 'which issuer of the configuration; default: the one with `stateKeys`'),
      option('--key <file>', "private key of the issuer (JWK or PEM), instead of the gateway's own"),
      option('--bind-ip <address>', 'the only address that may use it'),
      option(
        '--bind-certificate <thumbprint>',
        'SHA-256 thumbprint (base64url) of the only client certificate that may use it',
      ),
      option('--handle', 'also make a handle of 36 characters, printed on the second line'),
      option('--admin', 'a token for the control API instead, which no proxy accepts; needs --scope'),
      repeatable('--scope <scope>', `with --admin: what it may do, of ${ADMIN_SCOPES.join(', ')}; repeatable`),
      option('--name <name>', 'with --admin: who holds it, for the audit log'),
    ],
    json: true,
    run: mint,
  })
}

async function mint(terminal: Terminal, options: MintOptions): Promise<ExitCode> {
  const egress = readEgress(options)
  const lifeSeconds = parseSeconds(options.ttl)
  if (lifeSeconds === undefined || lifeSeconds <= 0 || lifeSeconds > 86_400)
    throw new UsageError('`--ttl` is a time of at most 24h, such as `15m` or `1h`')
  if (options.admin === true) return mintAdmin(terminal, options, lifeSeconds)
  if (options.scope !== undefined || options.name !== undefined)
    throw new UsageError('`--scope` and `--name` go with `--admin`')
  const { config, machineSets } = await loadCommandConfig(terminal, options.config)
  const issuer = chooseIssuer(config, options)
  const { bindIp: address, bindCertificate: certificate } = options
  const minted = await mintChecked({
    key: await readKey(config, issuer, options.key),
    issuer: issuer.issuer,
    audience: issuer.audience[0],
    sandbox: options.sandbox,
    tenant: options.tenant,
    egress,
    lifeSeconds,
    sets: compileRuleset(config, machineSets, []).sets,
    ...(address === undefined && certificate === undefined
      ? {}
      : {
          binding: {
            ...(address === undefined ? {} : { address }),
            ...(certificate === undefined ? {} : { certificate }),
          },
        }),
  })
  const handle = options.handle === true ? await mintHandle(config, minted.token, minted.expiresAtMs) : undefined
  if (options.json === true) {
    terminal.out(
      json({
        token: minted.token,
        tokenId: minted.tokenId,
        expiresAt: instant(minted.expiresAtMs),
        ...(handle === undefined ? {} : { handle }),
      }),
    )
  } else terminal.out(handle === undefined ? minted.token : `${minted.token}\n${handle}`)
  if (egress === undefined || (egress.kind === 'static' && egress.allowedHosts.length === 0))
    terminal.err('note: this token allows nothing; `--allow`, `--allow-all` or `--policy` say what it may reach')
  return EXIT.done
}

/** For the control API: it says nothing of sandboxes and destinations. */
async function mintAdmin(terminal: Terminal, options: MintOptions, lifeSeconds: number): Promise<ExitCode> {
  const others = [
    'sandbox',
    'tenant',
    'allow',
    'deny',
    'allowAll',
    'policy',
    'issuer',
    'key',
    'bindIp',
    'bindCertificate',
    'handle',
  ] as const
  if (others.some((option) => options[option] !== undefined))
    throw new UsageError('`--admin` goes with `--scope`, `--name`, `--ttl` and `--config` alone')
  const words = (options.scope ?? []).flatMap((text) => text.split(/[ ,]+/)).filter((word) => word !== '')
  const scopes = ADMIN_SCOPES.filter((scope) => words.includes(scope))
  const stranger = words.find((word) => !scopes.some((scope) => scope === word))
  if (stranger !== undefined || scopes.length === 0)
    throw new UsageError(
      stranger === undefined
        ? `\`--admin\` needs \`--scope\`, of ${ADMIN_SCOPES.join(', ')}`
        : `\`${stranger.slice(0, 40)}\` is no scope; there are ${ADMIN_SCOPES.join(', ')}`,
    )
  const { config } = await loadCommandConfig(terminal, options.config)
  const key = await ownKey(config)
  const { name } = options
  if (name !== undefined && (name === '' || name.length > 100)) throw new UsageError('`--name` has 1 to 100 characters')
  const { token, tokenId, expiresAtMs } = await mintAdminToken({ key, scopes, name, lifeSeconds })
  terminal.out(options.json === true ? json({ token, tokenId, scopes, expiresAt: instant(expiresAtMs) }) : token)
  return EXIT.done
}

/** A mistake in the options is told as one. */
async function mintChecked(options: Parameters<typeof mintToken>[0]): ReturnType<typeof mintToken> {
  try {
    return await mintToken(options)
  } catch (error) {
    throw error instanceof TypeError ? new UsageError(error.message) : error
  }
}

function readEgress({ allow, deny, allowAll, policy }: MintOptions): EgressPolicyData | undefined {
  const kinds = [allow ?? deny, allowAll, policy].filter((kind) => kind !== undefined)
  if (kinds.length > 1)
    throw new UsageError('`--allow` (with `--deny`), `--allow-all` and `--policy` exclude each other')
  if (allowAll === true) return { kind: 'allow-all' }
  if (policy !== undefined) return { kind: 'named', name: policy }
  if (allow === undefined && deny === undefined) return undefined
  return { kind: 'static', allowedHosts: allow ?? [], ...(deny === undefined ? {} : { deniedHosts: deny }) }
}

function chooseIssuer(config: Config, options: MintOptions): IssuerConfig {
  const names = config.issuers.map((issuer) => `\`${issuer.issuer}\``).join(', ')
  if (options.issuer !== undefined) {
    const named = config.issuers.find((issuer) => issuer.issuer === options.issuer)
    if (named !== undefined) return named
    throw new UsageError(
      `the configuration has no issuer \`${options.issuer.slice(0, 100)}\`${names === '' ? '' : `; it has ${names}`}`,
    )
  }
  const fitting =
    options.key === undefined ? config.issuers.filter((issuer) => issuer.stateKeys === true) : config.issuers
  const [only, ...others] = fitting
  if (only !== undefined && others.length === 0) return only
  if (only !== undefined) throw new UsageError(`several issuers fit; name one by \`--issuer\`: ${names}`)
  throw new UsageError('no issuer of the configuration has `stateKeys: true`; add one, or sign with `--key FILE`')
}

async function readKey(config: Config, issuer: IssuerConfig, file: string | undefined): Promise<SigningKey> {
  if (file !== undefined)
    return readSigningKey(
      await readKeyFile(file),
      issuer.algorithms.length === 1 ? { algorithm: issuer.algorithms[0] } : {},
    )
  if (issuer.secretFile !== undefined) {
    const bytes = Buffer.from(await readKeyFile(issuer.secretFile, 'latin1'), 'latin1')
    return secretSigningKey(bytes.at(-1) === 0x0a ? bytes.subarray(0, -1) : bytes)
  }
  if (issuer.stateKeys !== true)
    throw new UsageError(`the private key of \`${issuer.issuer}\` is not here; name it by \`--key FILE\``)
  return ownKey(config)
}

async function ownKey(config: Config): Promise<SigningKey> {
  const key = await (await openKeys(config.state)).signingKey()
  if (key !== undefined) return key
  throw new SallyportError(
    'SALLYPORT_KEY_UNREADABLE',
    `there is no key in \`${config.state}\`; \`sallyport keys generate\` makes one`,
  )
}

async function readKeyFile(file: string, encoding: BufferEncoding = 'utf8'): Promise<string> {
  try {
    return await readFile(file, encoding)
  } catch (error) {
    throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `key \`${file}\` can't be read (${whyUnreadable(error)})`, {
      cause: error,
    })
  }
}

async function mintHandle(config: Config, token: string, expiresAtMs: number): Promise<string> {
  const handles = await openHandles(`${config.state}/handles`, systemClock)
  return handles.mint(token, expiresAtMs)
}
