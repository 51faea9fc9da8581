/** Stands for the managed identity of an app: gives tokens over HTTP to whoever has its header, as the real package asks for them. */
import { once } from 'node:events'
import http from 'node:http'
import type net from 'node:net'
import { randomBytes } from 'node:crypto'

export interface TokenEndpoint {
  /** For the environment of whoever asks. */
  readonly environment: Readonly<Record<string, string>>
  /** Tokens that were given. */
  readonly given: Set<string>
  /** What was asked, as URLs. */
  readonly asked: string[]
  /** From now on: a status and a body in place of a token. */
  refusal: { readonly status: number; readonly body: object } | undefined
  close(): Promise<void>
}

export async function startTokenEndpoint(lifeSeconds = 3_600): Promise<TokenEndpoint> {
  const header = randomBytes(12).toString('hex')
  const given = new Set<string>()
  const asked: string[] = []
  const server = http.createServer((request, response) => {
    const url = new URL(request.url ?? '', 'http://endpoint')
    asked.push(url.href)
    const answer = (status: number, body: object): void => void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body)) // prettier-ignore
    if (request.headers['x-identity-header'] !== header) {
      answer(401, { error: 'invalid_client' })
      return
    }
    if (endpoint.refusal !== undefined) {
      answer(endpoint.refusal.status, endpoint.refusal.body)
      return
    }
    const token = `marker-arm-token-${randomBytes(16).toString('hex')}`
    given.add(token)
    answer(200, { access_token: token, expires_on: String(Math.floor(Date.now() / 1000) + lifeSeconds), resource: url.searchParams.get('resource'), token_type: 'Bearer' }) // prettier-ignore
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const endpoint: TokenEndpoint = {
    environment: { IDENTITY_ENDPOINT: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}/msi/token`, IDENTITY_HEADER: header }, // prettier-ignore
    given,
    asked,
    refusal: undefined,
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return endpoint
}
