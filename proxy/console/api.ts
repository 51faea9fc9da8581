/** Asks the control API of the gateway that the page came from, and nobody else. Holds the token: in memory, for as long as the page is open. */

/** How the API says no. @see docs/control-api.md */
export class ApiFault extends Error {
  readonly status: number
  /** Stable, such as `version_stale`; `unreachable` when there was no answer. */
  readonly code: string
  readonly advice: string | undefined
  readonly faults: readonly { readonly path: string; readonly message: string; readonly hint?: string }[]

  constructor(status: number, body: Partial<Pick<ApiFault, 'message' | 'advice' | 'faults'>> & { error?: string }) {
    super(body.message ?? `the gateway answered ${status}`)
    this.status = status
    this.code = body.error ?? 'unknown'
    this.advice = body.advice
    this.faults = body.faults ?? []
  }
}

/** A request. */
export interface Asked {
  readonly query?: Readonly<Record<string, string | number | undefined>>
  readonly body?: unknown
  readonly signal?: AbortSignal
}

let token: string | undefined
let onRefused: (fault: ApiFault) => void = () => undefined

/** From now on requests bring this token; `undefined`: none, which a client certificate or the admin socket may make up for. */
export function useToken(next: string | undefined, refused: (fault: ApiFault) => void): void {
  token = next
  onRefused = refused
}

/**
 * Asks, and reads the answer as JSON.
 * @throws ApiFault
 */
export async function ask<T>(method: string, path: string, asked: Asked = {}): Promise<T> {
  const response = await open(method, path, asked)
  const text = await response.text()
  return (text === '' ? undefined : JSON.parse(text)) as T
}

/**
 * Asks, and gives back the answer as it comes, for streams and texts.
 * @throws ApiFault
 */
export async function open(method: string, path: string, { query = {}, body, signal }: Asked = {}): Promise<Response> {
  // The console is one folder below the API, wherever that is.
  const url = new URL(`..${path}`, document.baseURI)
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== '') url.searchParams.set(name, String(value))
  const headers = new Headers()
  if (token !== undefined) headers.set('authorization', `Bearer ${token}`)
  if (body !== undefined) headers.set('content-type', 'application/json')
  const response = await fetch(url, {
    method,
    headers,
    redirect: 'error',
    cache: 'no-store',
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  }).catch((error: unknown) => {
    if (signal?.aborted === true) throw error
    throw new ApiFault(0, { error: 'unreachable', message: 'the gateway does not answer' })
  })
  if (response.ok) return response
  const fault = new ApiFault(response.status, await bodyOf(response))
  if (fault.status === 401) onRefused(fault)
  throw fault
}

async function bodyOf(response: Response): Promise<object> {
  try {
    const body: unknown = await response.json()
    return typeof body === 'object' && body !== null ? body : {}
  } catch {
    return {}
  }
}
