/** What the commands in a sandbox are told by variables: the way to the gateway, and what the caller adds. The worker itself gets none of it. */
import { clientVariables } from '../proxy/index.ts'
import type { InsideAddress } from './backend.ts'

/**
 * The proxy variables, without credentials, and the caller's own over them. `LD_PRELOAD`, `NODE_OPTIONS` and their like are the caller's business: they
 * act on commands, which may be anything already, and not on the worker.
 *
 * @throws TypeError for a name or a value that no environment can hold
 */
export function childEnvironment(
  gateway: InsideAddress,
  env: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(env)) {
    if (name === '' || /[=\0]/.test(name)) throw new TypeError(`\`${name}\` is not the name of a variable`)
    if (typeof value !== 'string' || value.includes('\0'))
      throw new TypeError(`the value of \`${name}\` is not a text without NUL`)
  }
  const host = gateway.host.includes(':') ? `[${gateway.host}]` : gateway.host
  const variables = clientVariables({
    proxy: new URL(`http://${host}:${gateway.port}`),
    token: undefined,
    user: 'sandbox',
  })
  const java = [variables['JAVA_TOOL_OPTIONS'], env['JAVA_TOOL_OPTIONS']]
    .filter((options) => options !== undefined)
    .join(' ')
  return { ...variables, ...env, JAVA_TOOL_OPTIONS: java }
}
