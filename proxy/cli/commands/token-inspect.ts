/** `sallyport token inspect`: shows what a token says, and says plainly what of it was verified and what was not. */
import { isHandle } from '../../state/handles.ts'
import { openState } from '../../state/state.ts'
import { compileRuleset } from '../../ruleset.ts'
import { parseCompact, type UnverifiedToken } from '../../tokens/compact.ts'
import { addCommand, configOption, option, type CommandHost } from '../command.ts'
import { findConfigFile, loadConfigFile } from '../config-file.ts'
import { identifyOffline } from '../identify-offline.ts'
import { fromNow, instant, json } from '../print.ts'
import { readToken, tokenOptions, type TokenOptions } from '../read-token.ts'
import { EXIT, UsageError, type ExitCode, type Terminal } from '../terminal.ts'

interface InspectOptions extends TokenOptions {
  readonly config?: string
  readonly client?: string
  readonly clientCertificate?: string
  readonly verify: boolean
  readonly json?: true
}

/** What came of verifying. */
type Verification =
  | { readonly result: 'verified' }
  | { readonly result: 'refused'; readonly reason: string; readonly detail?: string }
  | { readonly result: 'not verified'; readonly detail: string }

/** Adds the command. */
export function addInspectCommand(host: CommandHost): void {
  addCommand<InspectOptions>(host, {
    usage: 'inspect',
    description: 'show what a token says; with a configuration also whether the gateway would accept it',
    examples: [
      'sallyport token inspect --token-file sandbox.token',
      'sallyport token inspect --config sallyport.yaml --token-file - < sandbox.token',
    ],
    options: [
      configOption(),
      ...tokenOptions(),
      option('--client <address>', 'where the client is, for tokens bound to an address'),
      option(
        '--client-certificate <thumbprint>',
        'SHA-256 thumbprint (base64url) of its certificate, for tokens bound to one',
      ),
      option('--no-verify', 'only take it apart'),
    ],
    json: true,
    run: inspect,
  })
}

async function inspect(terminal: Terminal, options: InspectOptions): Promise<ExitCode> {
  const token = await readToken(terminal, options)
  if (token === undefined) throw new UsageError('no token: use `--token-file FILE` or $SALLYPORT_TOKEN')
  const sent = isHandle(token) ? await openHandle(terminal, token, options) : token
  const unverified = sent === undefined ? undefined : parseCompact(sent)
  const verification = await verify(terminal, token, options)
  if (unverified?.ok === false) {
    terminal.err(`sallyport: this is no token: ${unverified.fault.message}`)
    return EXIT.denied
  }
  const content = unverified?.value
  const handle = isHandle(token) ? { handle: true } : {}
  terminal.out(
    options.json === true
      ? json({ ...handle, ...contentOf(content), verification })
      : describe(content, verification, isHandle(token)),
  )
  return verification.result === 'refused' ? EXIT.denied : EXIT.done
}

/** The token that a handle stands for; `undefined` without a configuration, and for one that its state does not know. */
async function openHandle(terminal: Terminal, handle: string, options: InspectOptions): Promise<string | undefined> {
  const file = findConfigFile(terminal, options.config)
  if (file === undefined) return undefined
  const { config } = await loadConfigFile(terminal, file)
  const state = await openState(config.state)
  try {
    return await state.handles.open(handle)
  } finally {
    state.close()
  }
}

async function verify(terminal: Terminal, token: string, options: InspectOptions): Promise<Verification> {
  if (!options.verify) return { result: 'not verified', detail: 'by --no-verify' }
  const file = findConfigFile(terminal, options.config)
  if (file === undefined)
    return {
      result: 'not verified',
      detail: 'without a configuration (--config FILE) there are no keys to verify with',
    }
  const { config, machineSets } = await loadConfigFile(terminal, file)
  const identified = await identifyOffline(token, {
    config,
    sets: compileRuleset(config, machineSets, []).sets,
    clientAddress: options.client,
    clientCertificate: options.clientCertificate,
  })
  if (identified.ok) return { result: 'verified' }
  return {
    result: 'refused',
    reason: identified.reason,
    ...(identified.detail === undefined ? {} : { detail: identified.detail }),
  }
}

function contentOf(token: UnverifiedToken | undefined): object {
  return token === undefined ? {} : { header: token.header, claims: token.claims }
}

function describe(token: UnverifiedToken | undefined, verification: Verification, isHandle: boolean): string {
  const unknown = '\nA handle: what it stands for is in the state of the gateway, which --config FILE names.'
  const content = token === undefined ? unknown : describeToken(token)
  return `${describeVerification(verification)}\n${isHandle && token !== undefined ? '\nA handle that stands for this token:\n' : ''}${content}`
}

function describeVerification(verification: Verification): string {
  switch (verification.result) {
    case 'verified':
      return 'VERIFIED: signature, issuer, audience, claims, times, revocation and binding; a gateway with this configuration accepts it now.'
    case 'refused':
      return `REFUSED: ${verification.reason}${verification.detail === undefined ? '' : ` (${verification.detail})`}. What follows is the word of whoever made the token.`
    case 'not verified':
      return `NOT VERIFIED, nothing of it: ${verification.detail}. What follows is the word of whoever made the token.`
  }
}

function describeToken({ header, claims }: UnverifiedToken): string {
  const now = Date.now()
  const lines = Object.entries({ ...header, ...claims })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => {
      const text = typeof value === 'string' ? value : JSON.stringify(value)
      const isTime = ['exp', 'iat', 'nbf'].includes(name) && typeof value === 'number' && Math.abs(value) < 1e11
      return `  ${`${name.padEnd(8)} ${text}`.replace(/[^\x20-\x7e]/g, '?')}${isTime ? `  (${instant(value * 1000)}, ${fromNow(value * 1000, now)})` : ''}`
    })
  return `\n${lines.join('\n')}`
}
