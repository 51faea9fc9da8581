/** The variables of one command: the caller's own, and where it needs one the way to the gateway with a token that is fresh. A machine itself keeps none. */
import { clientVariables } from '../../../proxy/index.ts'
import { INSIDE_GATEWAY } from '../../backend.ts'
import type { GatewayPlace } from './gateway-address.ts'

/** What the provider gives: a way to a gateway at loopback, for backends that have one there. */
const GIVEN = clientVariables({
  proxy: new URL(`http://${INSIDE_GATEWAY.host}:${INSIDE_GATEWAY.port}`),
  token: undefined,
  user: 'sandbox',
})

/** `given` with the real way in the place of that one; what the caller set to something else stays. */
export function commandEnvironment(
  given: Readonly<Record<string, string>>,
  { protocol, name, port }: GatewayPlace,
  token: string,
): Readonly<Record<string, string>> {
  return exchanged(given, clientVariables({ proxy: new URL(`${protocol}//${name}:${port}`), token, user: 'sandbox' }))
}

/** `given` without any way: for commands whose connections are carried to the gateway whatever they do. */
export function straightEnvironment(given: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return exchanged(given, {})
}

function exchanged(
  given: Readonly<Record<string, string>>,
  real: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const env: Record<string, string> = {}
  for (const [key, value] of Object.entries({ ...real, ...given })) {
    const former = GIVEN[key]
    const present = real[key]
    if (value === former) {
      if (present !== undefined) env[key] = present
      // One variable holds options of ours and of the caller's, one after the other.
    } else if (former !== undefined && former !== '' && value.startsWith(`${former} `)) {
      env[key] = `${present ?? ''}${value.slice(former.length)}`.trim()
    } else env[key] = value
  }
  return env
}

/** For the probe, which speaks to the gateway by itself. */
export function basicCredentials(token: string): string {
  return Buffer.from(`sandbox:${token}`).toString('base64')
}
