/** A policy of a tenant with one more entry. Pure. */
import type { PolicyShown } from '../admin/routes/policies.ts'

/** The policy that is to be put, or why adding an entry is no answer. */
export type Extended =
  { readonly ok: true; readonly policy: PolicyShown['policy'] } | { readonly ok: false; readonly why: string }

/** `undefined` for a tenant that has none, which is refused everything. */
export function withEntry(policy: PolicyShown['policy'] | undefined, entry: string): Extended {
  switch (policy?.kind) {
    case undefined:
      return { ok: true, policy: { kind: 'static', allowedHosts: [entry], mode: 'enforce' } }
    case 'deny-all':
      return { ok: true, policy: { kind: 'static', allowedHosts: [entry], mode: policy.mode ?? 'enforce' } }
    case 'static':
      if (policy.allowedHosts.includes(entry))
        return { ok: false, why: 'The policy of the tenant has this entry already.' }
      return { ok: true, policy: { ...policy, allowedHosts: [...policy.allowedHosts, entry] } }
    case 'allow-all':
      return { ok: false, why: 'The policy of the tenant allows every public host already: something else refuses it.' }
    case 'named':
      return {
        ok: false,
        why: `The tenant has the named policy “${policy.name}”, which others may share. It is changed in the configuration of the gateway.`,
      }
  }
}

/** As a policy writes it: ports 80 and 443 go without saying. */
export function entryFor(host: string, port: number): string {
  const isAddress = host.includes(':')
  if (port === 443 || port === 80) return isAddress ? `[${host.replace(/^\[|\]$/g, '')}]:${port}` : host
  return `${isAddress ? `[${host.replace(/^\[|\]$/g, '')}]` : host}:${port}`
}
