/** Asks the control API of a gateway in another process. Bounded in time and size; a credential is in no error. */
import { readFile } from 'node:fs/promises'
import type http from 'node:http'
import https from 'node:https'
import { SallyportError } from '../../policies/index.ts'
import nodeHttp from '../node-http.ts'

/** Where the control API is, and by what it lets this process in. */
export interface ControlAccess {
  /** `http://host:port`, `https://host:port`, or `unix:/path` of the socket of the gateway's own user, which needs no token. */
  readonly admin: string | URL
  /** An admin token with the scope `token`. */
  readonly token?: string
  /** A file that holds it, read for every request, so that it can be renewed. */
  readonly tokenFile?: string
  /** PEM of authorities for `https:`; the system's by default. */
  readonly ca?: string
}

/** What came back. */
export interface ControlAnswer {
  readonly status: number
  /** The `error` of a refusal. */
  readonly error: string | undefined
  readonly message: string
  readonly body: Readonly<Record<string, unknown>>
}

/** A client; it connects when it is asked. */
export interface ControlClient {
  /**
   * The answer, whatever it says.
   * @throws SallyportError `SALLYPORT_GATEWAY_UNREACHABLE`; its `cause` has the system's code
   */
  readonly ask: (method: string, path: string, body?: object) => Promise<ControlAnswer>
  /** Ends idle connections. */
  readonly close: () => void
}

const TIMEOUT_MS = 10_000
const MAX_ANSWER_BYTES = 1024 * 1024
const MAX_CONNECTIONS = 8

/** @throws TypeError for an address that is none, or both `token` and `tokenFile` */
export function createControlClient({ admin, token, tokenFile, ca }: ControlAccess): ControlClient {
  const place = placeOf(String(admin))
  if (token !== undefined && tokenFile !== undefined) throw new TypeError('`token` and `tokenFile` exclude each other')
  const agent =
    place.protocol === 'https:'
      ? new https.Agent({ keepAlive: true, maxSockets: MAX_CONNECTIONS, ...(ca !== undefined && { ca }) })
      : new nodeHttp.Agent({ keepAlive: true, maxSockets: MAX_CONNECTIONS })
  const bearer = async (): Promise<string | undefined> =>
    tokenFile === undefined ? token : (await readFile(tokenFile, 'utf8')).trim()

  return {
    ask: async (method, path, body) => {
      try {
        const credential = await bearer()
        const text = body === undefined ? undefined : JSON.stringify(body)
        const headers = {
          ...(credential !== undefined && { authorization: `Bearer ${credential}` }),
          ...(text !== undefined && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
        }
        const options = { ...place.options, agent, method, path, headers, signal: AbortSignal.timeout(TIMEOUT_MS) }
        return await exchange(place.protocol === 'https:' ? https.request(options) : nodeHttp.request(options), text)
      } catch (error) {
        throw unreachable(error)
      }
    },
    close: () => agent.destroy(),
  }
}

/** The body of an answer with the one status that is right. @throws SallyportError for any other answer */
export function expected(answer: ControlAnswer, status: number): Readonly<Record<string, unknown>> {
  if (answer.status === status) return answer.body
  const { error = `status ${answer.status}`, message } = answer
  if (error === 'policy_invalid') throw new SallyportError('SALLYPORT_POLICY_INVALID', message)
  throw new SallyportError('SALLYPORT_GATEWAY_REFUSED', `the control API of the gateway refuses: ${error}: ${message}`)
}

/** Whether nobody listens there at all: then nothing is bound there either. */
export function isGone(error: unknown): boolean {
  const { cause } = error as { readonly cause?: unknown }
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined
  return code === 'ECONNREFUSED' || code === 'ENOENT'
}

function placeOf(text: string): { readonly protocol: string; readonly options: http.RequestOptions } {
  const path = /^unix:(\/.+)$/.exec(text)?.[1]
  if (path !== undefined) return { protocol: 'http:', options: { socketPath: path } }
  const url = URL.parse(text)
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:'))
    throw new TypeError('`admin` is `http://host:port`, `https://host:port` or `unix:/path`')
  if (url.username !== '' || url.password !== '')
    throw new TypeError('`admin` must not hold credentials; use `token` or `tokenFile`')
  const { protocol, hostname, port } = url
  // Brackets are of the URL, not of the address.
  return { protocol, options: { host: hostname.replace(/^\[|\]$/g, ''), ...(port !== '' && { port }) } }
}

function exchange(request: http.ClientRequest, text: string | undefined): Promise<ControlAnswer> {
  return new Promise((resolve, reject) => {
    request.once('error', reject)
    request.once('response', (response) => {
      const chunks: Buffer[] = []
      let size = 0
      response.on('data', (chunk: Buffer) => {
        size += chunk.length
        if (size > MAX_ANSWER_BYTES) request.destroy(new Error('too long an answer'))
        else chunks.push(chunk)
      })
      response.once('error', reject)
      response.once('end', () => {
        try {
          resolve(answerOf(response.statusCode ?? 0, Buffer.concat(chunks).toString()))
        } catch (error) {
          reject(error instanceof Error ? error : new Error('unreadable'))
        }
      })
    })
    request.end(text)
  })
}

function answerOf(status: number, text: string): ControlAnswer {
  const parsed: unknown = text === '' ? {} : JSON.parse(text)
  if (typeof parsed !== 'object' || parsed === null) throw new Error('not the answer of a control API')
  const body = parsed as Readonly<Record<string, unknown>>
  const { error, message } = body as { readonly error?: unknown; readonly message?: unknown }
  return {
    status,
    body,
    error: typeof error === 'string' ? error : undefined,
    message: typeof message === 'string' ? message.slice(0, 500) : '',
  }
}

function unreachable(cause: unknown): SallyportError {
  const code =
    cause instanceof Error && 'code' in cause ? String(cause.code) : cause instanceof Error ? cause.name : 'fault'
  return new SallyportError(
    'SALLYPORT_GATEWAY_UNREACHABLE',
    `the control API of the gateway can not be asked (${code})`,
    { cause },
  )
}
