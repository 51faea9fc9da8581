/** Asks the operator's service for a tenant's policy. Reads nothing of the answer but its status and its JSON. */

/** Gives a tenant's policy as data, or `undefined` for a tenant that the service does not know. Rejects when it is out of reach. */
export type TenantResolver = (tenant: string, signal: AbortSignal) => Promise<unknown>

/** The `tenantResolver` section of the configuration, as far as asking is concerned. */
export interface TenantResolverSettings {
  /** With `{tenant}` in its path or query; it is replaced percent-encoded. */
  readonly url: string
  /** For one answer; 5 by default. */
  readonly timeoutSeconds?: number | undefined
}

/** A policy has at most 10,000 entries, and few come near. */
const MAX_ANSWER_BYTES = 1_048_576

/**
 * 200 with a JSON policy, or 404. Redirects are not followed; time and size are bounded; no credentials are sent.
 * @throws TypeError for a URL without `{tenant}`, or with it in the host
 */
export function httpTenantResolver({ url, timeoutSeconds = 5 }: TenantResolverSettings): TenantResolver {
  const { origin } = new URL(urlOf('tenant'))
  if (!url.includes('{tenant}') || new URL(urlOf('other')).origin !== origin) {
    throw new TypeError('the URL of the tenant resolver must hold `{tenant}` in its path or query')
  }
  return async (tenant, signal) => {
    // The only two names that would walk up the path; nobody is called that.
    if (tenant === '.' || tenant === '..') return undefined
    const response = await fetch(urlOf(tenant), {
      redirect: 'error',
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutSeconds * 1_000)]),
      headers: { accept: 'application/json' },
    })
    if (response.status === 200) return JSON.parse(await readText(response)) as unknown
    await response.body?.cancel()
    if (response.status === 404) return undefined
    throw new Error(`the tenant resolver answered ${response.status}`)
  }

  function urlOf(tenant: string): string {
    return url.replaceAll('{tenant}', () => encodeURIComponent(tenant))
  }
}

/** Counted after decompression. */
async function readText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let total = 0
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    total += chunk.byteLength
    if (total > MAX_ANSWER_BYTES)
      throw new Error(`the tenant resolver answered with more than ${MAX_ANSWER_BYTES} bytes`)
    chunks.push(chunk)
  }
  return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks))
}
