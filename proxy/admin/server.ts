/** The admin listener: health, readiness, metrics and the public keys. It changes nothing, asks for no credentials, and never shares the proxy's port. */
import Fastify, { type FastifyReply } from 'fastify'
import { SallyportError } from '../../policies/error.ts'
import { listenText, type ListenAddress } from '../config/values.ts'
import type { Metrics } from './metrics.ts'

/** What the admin listener asks the gateway. */
export interface AdminOptions {
  readonly metrics: Pick<Metrics, 'render' | 'contentType'>
  /** Why the gateway should get no new connections at the moment, such as `draining` or `audit_unavailable`; empty when it should. */
  readonly notReady: () => readonly string[]
  /** The gateway's own public keys, as a JWK set. */
  readonly publicKeys: () => { readonly keys: readonly object[] } | Promise<{ readonly keys: readonly object[] }>
}

/** A listener for operators. */
export interface AdminServer {
  /**
   * Starts to listen, and says where (with the port that was picked for 0).
   * @throws SallyportError `SALLYPORT_LISTEN_FAILED`
   */
  readonly listen: (address: ListenAddress) => Promise<ListenAddress>
  /** Ends it with its connections; idempotent. */
  readonly close: () => Promise<void>
}

/** Creates the admin listener; it listens nowhere before {@link AdminServer.listen}. */
export function createAdminServer(options: AdminOptions): AdminServer {
  const server = Fastify({
    logger: false,
    bodyLimit: 1024,
    requestTimeout: 10_000,
    connectionTimeout: 30_000,
    keepAliveTimeout: 30_000,
    forceCloseConnections: true,
    http: { headersTimeout: 10_000, maxHeaderSize: 16 * 1024 },
  })
  server.addHook('onSend', (_request, reply, _payload, done) => {
    reply.header('cache-control', 'no-store').header('x-content-type-options', 'nosniff')
    done()
  })
  server.get('/healthz', () => ({ status: 'ok' }))
  server.get('/readyz', (_request, reply) => {
    const reasons = options.notReady()
    return reasons.length === 0 ? { status: 'ready' } : reply.code(503).send({ status: 'not_ready', reasons })
  })
  server.get('/metrics', async (_request, reply) =>
    reply.type(options.metrics.contentType).send(await options.metrics.render()),
  )
  server.get('/.well-known/jwks.json', async (_request, reply) => {
    const keys = await options.publicKeys()
    return reply.type('application/jwk-set+json').send(JSON.stringify(keys))
  })
  server.setNotFoundHandler((_request, reply) => refuse(reply, 404, 'not_found'))
  // What went wrong inside is for the log of the gateway, not for whoever asks.
  server.setErrorHandler((_error, _request, reply) => refuse(reply, 500, 'internal'))

  return {
    listen: async (address) => {
      try {
        if (address.kind === 'unix') {
          await server.listen({ path: address.path })
          return address
        }
        await server.listen({ host: address.host, port: address.port })
        const bound = server.server.address()
        return { ...address, port: typeof bound === 'object' && bound !== null ? bound.port : address.port }
      } catch (error) {
        throw listenError(address, error)
      }
    },
    close: () => server.close(),
  }
}

async function refuse(reply: FastifyReply, status: number, error: string): Promise<FastifyReply> {
  return reply.code(status).send({ error })
}

function listenError(address: ListenAddress, error: unknown): SallyportError {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown fault'
  const words: Readonly<Record<string, string>> = {
    EADDRINUSE: 'it is in use',
    EACCES: 'permission denied',
    EADDRNOTAVAIL: 'this machine has no such address',
    ENOENT: 'its folder does not exist',
  }
  const message = `admin listener: can't listen on \`${listenText(address)}\`: ${words[code] ?? code}`
  return new SallyportError('SALLYPORT_LISTEN_FAILED', message, { cause: error })
}
