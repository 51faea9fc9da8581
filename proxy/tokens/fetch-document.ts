/** Fetches one small document over HTTP with everything bounded: the only network access of `tokens/`, and a seam. */

/** Bytes of a key set that are read; 100 RSA keys with their certificate chains stay below. */
export const MAX_DOCUMENT_BYTES = 512 * 1024

/** Milliseconds for the whole fetch. */
export const FETCH_TIMEOUT_MS = 5_000

/** Gives the bytes of `url`, or throws an error whose message is fit for a log: it names neither the URL's user info nor what was answered. */
export type FetchDocument = (url: URL, signal: AbortSignal, bearer?: string) => Promise<Uint8Array>

/** The real fetch: status 200 only, redirects not followed, body and time bounded, no cookies, no credentials but `bearer`. */
export async function fetchDocument(
  url: URL,
  signal: AbortSignal,
  bearer?: string,
  timeoutMs: number = FETCH_TIMEOUT_MS,
): Promise<Uint8Array> {
  const timeout = AbortSignal.timeout(timeoutMs)
  const either = AbortSignal.any([signal, timeout])
  try {
    const response = await fetch(url, {
      redirect: 'manual',
      signal: either,
      headers: {
        accept: 'application/jwk-set+json, application/json',
        ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
      },
    })
    return await readBody(response)
  } catch (error) {
    if (error instanceof DocumentFault) throw error
    if (timeout.aborted) throw new DocumentFault(`no answer within ${timeoutMs} ms`)
    throw new DocumentFault(`the connection failed${errorCode(error)}`)
  }
}

class DocumentFault extends Error {}

async function readBody(response: Response): Promise<Uint8Array> {
  if (response.status !== 200) {
    await response.body?.cancel()
    const redirected = response.status >= 300 && response.status < 400 ? '; a redirect is not followed' : ''
    throw new DocumentFault(`the answer was status ${response.status}${redirected}`)
  }
  const chunks: Uint8Array[] = []
  let total = 0
  // Counted as decoded, so that a small compressed body can't become a large one. Leaving the loop cancels the rest.
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    total += chunk.byteLength
    if (total > MAX_DOCUMENT_BYTES) throw new DocumentFault(`the answer is larger than ${MAX_DOCUMENT_BYTES} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** The system's code for the fault (`ECONNREFUSED`, `CERT_HAS_EXPIRED`), which can hold nothing private. */
function errorCode(error: unknown): string {
  for (let at = error; at instanceof Error; at = at.cause) {
    const code = 'code' in at ? at.code : undefined
    if (typeof code === 'string' && /^[A-Z0-9_]+$/.test(code)) return ` (${code})`
  }
  return ''
}
