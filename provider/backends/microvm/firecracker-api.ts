/** Firecracker's API over its unix socket: one request at a time, each with an end, and every reply checked and bounded. */
import { connectControl } from '../control-socket.ts'
import { MicrovmError, printable } from './microvm-error.ts'
import nodeHttp from '../../node-http.ts'

/** A body of JSON. */
type Body = Readonly<Record<string, unknown>>

/** The API of one machine. Every method throws MicrovmError: `api_refused` with what it says, `api_lost` when it says nothing. */
export interface FirecrackerApi {
  readonly get: (path: string) => Promise<Body>
  readonly put: (path: string, body: Body, timeoutMs?: number) => Promise<void>
  readonly patch: (path: string, body: Body) => Promise<void>
}

const TIMEOUT_MS = 10_000
const MAX_REPLY_BYTES = 64 * 1024

/** Opens nothing yet; each request has a connection of its own. */
export function createFirecrackerApi(socketPath: string): FirecrackerApi {
  const ask = async (
    method: 'GET' | 'PUT' | 'PATCH',
    path: string,
    body?: Body,
    timeoutMs = TIMEOUT_MS,
  ): Promise<Body> => {
    // prettier-ignore
    const { status, text } = await exchange(socketPath, method, path, body, timeoutMs).catch((error: unknown) => {
      throw new MicrovmError('api_lost', `Firecracker does not answer \`${method} ${path}\`: ${printable(error instanceof Error ? error.message : '')}`, error) // prettier-ignore
    })
    const reply = text === '' ? {} : parse(text)
    if (status === (method === 'GET' ? 200 : 204) && reply !== undefined) return reply
    const fault = reply?.['fault_message']
    const said = typeof fault === 'string' ? fault : text
    throw new MicrovmError('api_refused', `Firecracker refuses \`${method} ${path}\` (${status}): ${printable(said) || 'no reason was given'}`) // prettier-ignore
  }
  return {
    get: (path) => ask('GET', path),
    put: async (path, body, timeoutMs) => {
      await ask('PUT', path, body, timeoutMs)
    },
    patch: async (path, body) => {
      await ask('PATCH', path, body)
    },
  }
}

function parse(text: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Body) : undefined
  } catch {
    return undefined
  }
}

async function exchange(
  socketPath: string,
  method: string,
  path: string,
  body: Body | undefined,
  timeoutMs: number,
): Promise<{ readonly status: number; readonly text: string }> {
  const socket = await connectControl(socketPath)
  const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body))
  return new Promise((resolve, reject) => {
    const request = nodeHttp.request({
      createConnection: () => socket,
      method,
      path,
      headers: {
        host: 'localhost',
        accept: 'application/json',
        ...(bytes !== undefined && { 'content-type': 'application/json', 'content-length': bytes.length }),
      },
    })
    const timer = setTimeout(() => request.destroy(new Error(`no reply within ${timeoutMs} ms`)), timeoutMs)
    request.on('error', reject)
    request.once('close', () => {
      clearTimeout(timer)
      reject(new Error('the connection closed'))
    })
    request.once('response', (response) => {
      let text = ''
      response.on('data', (chunk: Buffer) => {
        text += chunk.toString('latin1')
        if (text.length > MAX_REPLY_BYTES) request.destroy(new Error('the reply is too long'))
      })
      response.on('error', reject)
      response.once('end', () => {
        if (response.complete) resolve({ status: response.statusCode ?? 0, text })
        socket.destroy()
      })
    })
    request.end(bytes)
  })
}
