/** `sallyport token`: what mints, shows and revokes tokens. */
import { addGroup, type CommandHost } from '../command.ts'
import { addInspectCommand } from './token-inspect.ts'
import { addMintCommand } from './token-mint.ts'
import { addRevokeCommand } from './token-revoke.ts'

/** Adds the commands. */
export function addTokenCommands(host: CommandHost): void {
  const group = addGroup(host, 'token', 'mint, inspect and revoke tokens', [
    'sallyport token mint --sandbox sbx_42 --allow api.github.com --ttl 15m > sandbox.token',
    'sallyport token inspect --token-file sandbox.token',
    'sallyport token revoke --sandbox sbx_42',
  ])
  addMintCommand(group)
  addInspectCommand(group)
  addRevokeCommand(group)
}
