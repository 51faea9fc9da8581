/** Asks the operator's service for a tenant's policy. Reads nothing of the answer but its status, its `ETag` and its JSON. */
import { SallyportError } from '../../policies/index.ts'
import { readBearerFile } from '../bearer-file.ts'
import { largeDocuments } from '../documents/large-documents.ts'
import { DocumentFault } from '../documents/parse-document.ts'

/**
 * Gives a tenant's policy as data, or `undefined` for a tenant that the service does not know. Rejects when it is out of reach. `memory` is that of the tenant,
 * for what the resolver likes to know again; the very same data as before stands for an answer that did not change.
 */
export type TenantResolver = (tenant: string, signal: AbortSignal, memory?: TenantMemory) => Promise<unknown>

/** What was answered last of a tenant. */
export interface TenantMemory {
  etag?: string | undefined
  data?: unknown
}

/** The `tenantResolver` section of the configuration, as far as asking is concerned. */
export interface TenantResolverSettings {
  /** With `{tenant}` in its path or query; it is replaced percent-encoded. */
  readonly url: string
  /** Holds a bearer token for the service; read at every use. */
  readonly tokenFile?: string | undefined
  /** For one answer; 5 by default. */
  readonly timeoutSeconds?: number | undefined
}

/** A list of a policy has 100,000 entries at most, of 40 bytes or so. */
const MAX_ANSWER_BYTES = 4_194_304
/** @see RFC 9110 section 8.8.3 */
const ETAG = /^(?:W\/)?"[\x21\x23-\x7e]{0,256}"$/

/**
 * 200 with a JSON policy, 304 for that of before, or 404. Redirects are not followed; time and size are bounded; no credentials are sent but the token of the file.
 * @throws TypeError for a URL without `{tenant}`, or with it in the host
 */
export function httpTenantResolver({ url, tokenFile, timeoutSeconds = 5 }: TenantResolverSettings): TenantResolver {
  const { origin } = new URL(urlOf('tenant'))
  if (!url.includes('{tenant}') || new URL(urlOf('other')).origin !== origin) {
    throw new TypeError('the URL of the tenant resolver must hold `{tenant}` in its path or query')
  }
  return async (tenant, signal, memory = {}) => {
    // The only two names that would walk up the path; nobody is called that.
    if (tenant === '.' || tenant === '..') return undefined
    const response = await fetch(urlOf(tenant), {
      redirect: 'error',
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutSeconds * 1_000)]),
      headers: {
        accept: 'application/json',
        ...(tokenFile !== undefined && { authorization: `Bearer ${await readToken(tokenFile)}` }),
        ...(memory.etag !== undefined && { 'if-none-match': memory.etag }),
      },
    })
    if (response.status === 200) {
      const data = await parse(await readBytes(response))
      const etag = response.headers.get('etag') ?? ''
      const isKept = ETAG.test(etag) && data !== undefined
      memory.etag = isKept ? etag : undefined
      memory.data = isKept ? data : undefined
      return data
    }
    await response.body?.cancel()
    if (response.status === 304 && memory.etag !== undefined) return memory.data
    if (response.status !== 404) throw unusable(`answered ${response.status}`)
    memory.etag = memory.data = undefined
    return undefined
  }

  function urlOf(tenant: string): string {
    return url.replaceAll('{tenant}', () => encodeURIComponent(tenant))
  }
}

async function readToken(file: string): Promise<string> {
  return readBearerFile(file).catch((error: unknown) => {
    throw unusable(`is not asked: ${error instanceof Error ? error.message : 'no token'}`)
  })
}

/** An answer holds a policy, and of what is none nothing is repeated. */
async function parse(bytes: Uint8Array): Promise<unknown> {
  try {
    return await largeDocuments.read('json', bytes)
  } catch (error) {
    throw unusable(`answered with something that ${error instanceof DocumentFault ? error.message : 'is not read'}`)
  }
}

function unusable(what: string): SallyportError {
  return new SallyportError('SALLYPORT_POLICY_INVALID', `the tenant resolver ${what}`)
}

/** Counted after decompression. */
async function readBytes(response: Response): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  let total = 0
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    total += chunk.byteLength
    if (total > MAX_ANSWER_BYTES) throw unusable(`answered with more than ${MAX_ANSWER_BYTES} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
