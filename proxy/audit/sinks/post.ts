/** Posts a body to a sink over HTTP with everything bounded: the only place of the audit log that does. */
import { DeliveryFault } from './sink.ts'

/** What is posted. */
export interface Post {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** For the whole exchange. */
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/** Bytes of an answer that are read; more is an answer that nobody needs, and a fault. */
const MAX_ANSWER_BYTES = 64 * 1024

/**
 * The body of a whole 2xx answer.
 * @throws DeliveryFault `refused` for 400, 413 and 422, which speak of what was sent; `later` for everything else
 */
export async function post({ url, headers, body, timeoutMs, signal }: Post): Promise<string> {
  const timeout = AbortSignal.timeout(timeoutMs)
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'user-agent': 'sallyport', ...headers },
      body,
      redirect: 'manual',
      signal: AbortSignal.any([signal, timeout]),
    })
    if (response.ok) return await readAnswer(response)
    await response.body?.cancel()
    const isRefused = response.status === 400 || response.status === 413 || response.status === 422
    const hint = response.status >= 300 && response.status < 400 ? '; a redirect is not followed' : ''
    throw new DeliveryFault(
      `the answer was status ${response.status}${hint}`,
      isRefused ? 'refused' : 'later',
      retryAfterMs(response.headers.get('retry-after')),
    )
  } catch (error) {
    if (error instanceof DeliveryFault) throw error
    if (timeout.aborted) throw new DeliveryFault(`no whole answer within ${timeoutMs} ms`)
    throw new DeliveryFault(`the connection failed${systemCode(error)}`)
  }
}

async function readAnswer(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let total = 0
  for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    total += chunk.byteLength
    // All was taken: what the other side has to say about it is of no use.
    if (total > MAX_ANSWER_BYTES) return ''
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

/** Seconds only; of a date it is not worth trusting another clock. */
function retryAfterMs(header: string | null): number | undefined {
  return header !== null && /^\d{1,6}$/.test(header) ? Number(header) * 1000 : undefined
}

/** The system's code for the fault (`ECONNREFUSED`, `CERT_HAS_EXPIRED`), which can hold nothing private. */
function systemCode(error: unknown): string {
  for (let at = error; at instanceof Error; at = at.cause) {
    const code = 'code' in at ? at.code : undefined
    if (typeof code === 'string' && /^[A-Z0-9_]+$/.test(code)) return ` (${code})`
  }
  return ''
}
