/** What is lawful in a configuration and yet likely a mistake, or a wide door: said at the start, by `doctor` and by `policy check`. */
import { metadataIn, parseNetworkRules } from '../../policies/index.ts'
import type { Config } from './schema.ts'

/** Said of an issuer with `stateKeys` when there is no key yet. */
export const NO_OWN_KEY = 'an issuer accepts what the own keys of the gateway sign (`stateKeys`), and there is none yet'

/** Said where policies come from files and the state still holds some that were put through the control API. */
export const TWO_SOURCES =
  'policies that were put through the control API are in the place of those in `policy.tenantFiles` until they are deleted there'

/** Whether {@link NO_OWN_KEY} applies where the state holds so many keys. */
export function lacksOwnKey({ issuers }: Config, keys: number): boolean {
  return keys === 0 && issuers.some((issuer) => issuer.stateKeys)
}

/** One line each. */
export function configWarnings({ network }: Config): readonly string[] {
  const rules = parseNetworkRules(network)
  if (!rules.ok) return []
  return rules.value.allowPrivate.flatMap((range) => {
    const opened = metadataIn(range)
    // Whoever names the one address means it.
    if (opened.length === 0 || opened.includes(range.text.replace(/\/.*/, ''))) return []
    return [
      `network.allowPrivate: \`${range.text}\` opens metadata services of clouds (${opened.join(', ')}), and with them credentials of this machine`,
    ]
  })
}
