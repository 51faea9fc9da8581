/** The admin listener: health, metrics, the public keys and the control API. It never shares the proxy's port. */
import http from 'node:http'
import https from 'node:https'
import { Readable } from 'node:stream'
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import { SallyportError } from '../../policies/error.ts'
import { jsonPieces } from '../../policies/json-steps.ts'
import { listenText, type ListenAddress } from '../config/values.ts'
import { piecesInSlices } from '../in-slices.ts'
import { removeStale } from '../relay/listen-unix.ts'
import type { TlsMaterial } from '../relay/listen.ts'
import { type Access, requireScope } from './access.ts'
import { AdminError, adviceOf, statusOf } from './admin-error.ts'
import { readBodies } from './read-bodies.ts'
import type { Metrics } from './metrics.ts'
import { type ConsoleOptions, mountConsole } from './mount-console.ts'
import { openApiDocument } from './openapi.ts'
import { type AdminRoute, DEFAULT_BODY_LIMIT, type EventStream } from './route.ts'
import { sendEvents } from './send-events.ts'

/** What the admin listener asks the gateway. */
export interface AdminOptions {
  readonly metrics: Pick<Metrics, 'render' | 'contentType'>
  /** Why the gateway should get no new connections at the moment, such as `draining` or `audit_unavailable`; empty when it should. */
  readonly notReady: () => readonly string[]
  /** How many workers do not serve at the moment. */
  readonly missingWorkers?: () => number
  /** The gateway's own public keys, as a JWK set. */
  readonly publicKeys: () => { readonly keys: readonly object[] } | Promise<{ readonly keys: readonly object[] }>
  /** What needs no credentials beside health. */
  readonly open: () => readonly ('jwks' | 'metrics')[]
  readonly access: Access
  readonly routes: readonly AdminRoute[]
  /** Absent: no console. */
  readonly console?: ConsoleOptions
  readonly version: string
  /** Absent: plain. */
  readonly tls?: TlsMaterial | undefined
  /** Told of a fault that became a 500. */
  readonly onFault?: (error: unknown) => void
}

/** A listener for operators. */
export interface AdminServer {
  /**
   * Starts to listen, and says where (with the port that was picked for 0). A unix socket can be opened by its owner alone.
   * @throws SallyportError `SALLYPORT_LISTEN_FAILED`
   */
  readonly listen: (address: ListenAddress) => Promise<ListenAddress>
  /** Takes another certificate for connections to come. */
  readonly reload: (tls: TlsMaterial) => void
  /** Ends it with its connections; idempotent. */
  readonly close: () => Promise<void>
}

const HTTP_LIMITS = {
  headersTimeout: 10_000,
  requestTimeout: 10_000,
  keepAliveTimeout: 30_000,
  maxHeaderSize: 48 * 1024,
}
/** Without a byte either way; streams of events send one more often. */
const IDLE_MS = 30_000
const MAX_CONNECTIONS = 1_024
/** A tenant's name of 100 characters, percent-encoded. */
const MAX_PARAMETER = 1_200

const ANSWER_HEADERS = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' }

/** Creates the admin listener; it listens nowhere before {@link AdminServer.listen}. */
export function createAdminServer(options: AdminOptions): AdminServer {
  const { tls } = options
  const app = Fastify({
    logger: false,
    bodyLimit: DEFAULT_BODY_LIMIT,
    exposeHeadRoutes: false,
    onProtoPoisoning: 'error',
    onConstructorPoisoning: 'error',
    routerOptions: { maxParamLength: MAX_PARAMETER },
    // A path whose percent-encoding can't be read comes to no route, so to no hook either.
    frameworkErrors: (_error, _request, reply) =>
      void refuse(reply.headers(ANSWER_HEADERS), new AdminError('request_malformed', 'the path can not be read')),
    serverFactory: (handler) => {
      const server: http.Server =
        tls === undefined
          ? http.createServer(HTTP_LIMITS, handler)
          : https.createServer({ ...HTTP_LIMITS, ...tlsOptions(tls) }, handler)
      server.setTimeout(IDLE_MS)
      server.maxConnections = MAX_CONNECTIONS
      return server
    },
  })
  const { server } = app
  // Only JSON: what a page in a browser may send without asking is refused.
  app.removeContentTypeParser('text/plain')
  readBodies(app)
  app.addHook('onSend', (_request, reply, _payload, done) => {
    reply.headers(ANSWER_HEADERS)
    done()
  })
  mountOpen(app, options)
  mountControl(app, options)
  if (options.console) mountConsole(app, options.console)
  app.setNotFoundHandler((_request, reply) => refuse(reply, new AdminError('not_found', 'there is no such route')))
  app.setErrorHandler((error, _request, reply) => {
    const known = adminErrorOf(error)
    // What went wrong inside is for the log of the gateway, not for whoever asks.
    if (known === undefined) options.onFault?.(error)
    return refuse(reply, known ?? new AdminError('internal', 'something went wrong inside the gateway'))
  })

  let closing: Promise<void> | undefined
  return {
    listen: async (address) => {
      try {
        await app.ready()
        await listenOn(server, address)
      } catch (error) {
        throw listenError(address, error)
      }
      if (address.kind === 'unix') return address
      const bound = server.address()
      return { ...address, port: typeof bound === 'object' && bound !== null ? bound.port : address.port }
    },
    reload: (material) => {
      if (server instanceof https.Server) server.setSecureContext(tlsOptions(material))
    },
    close: () => (closing ??= closeAll(app, server)),
  }
}

function mountOpen(app: FastifyInstance, options: AdminOptions): void {
  const { metrics, notReady, missingWorkers, publicKeys, open, access } = options
  app.get('/healthz', () => ({ status: 'ok' }))
  app.get('/readyz', (_request, reply) => {
    const reasons = notReady()
    const missing = missingWorkers?.() ?? 0
    const also = missing > 0 && { missingWorkers: missing }
    return reasons.length === 0
      ? { status: 'ready', ...also }
      : reply.code(503).send({ status: 'not_ready', reasons, ...also })
  })
  const unlessOpen = (what: 'jwks' | 'metrics') => async (request: FastifyRequest) => {
    if (!open().includes(what)) requireScope(await access.identify(request.raw), ['read'])
  }
  app.get('/metrics', { onRequest: unlessOpen('metrics') }, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.render()),
  )
  app.get('/.well-known/jwks.json', { onRequest: unlessOpen('jwks') }, async (_request, reply) => {
    const keys = await publicKeys()
    return reply.type('application/jwk-set+json').send(JSON.stringify(keys))
  })
}

function mountControl(app: FastifyInstance, { routes, access, version }: AdminOptions): void {
  const document = openApiDocument(routes, version)
  const letIn = async (request: FastifyRequest) =>
    requireScope(await access.identify(request.raw), ['read', 'policy', 'token'])
  app.get('/openapi.json', { onRequest: letIn }, () => document)
  for (const route of routes) mount(app, route, access)
}

function mount(app: FastifyInstance, route: AdminRoute, access: Access): void {
  const { base, action } = splitAction(route.path)
  const callers = new WeakMap<FastifyRequest, Awaited<ReturnType<Access['identify']>>>()
  app.route({
    method: route.method,
    url: base,
    ...(route.bodyLimit !== undefined && { bodyLimit: route.bodyLimit }),
    // Before the body is read: a stranger's is not.
    onRequest: async (request) => {
      const caller = await access.identify(request.raw)
      requireScope(caller, route.scopes)
      callers.set(request, caller)
    },
    handler: async (request, reply) => {
      const caller = callers.get(request)
      if (caller === undefined) throw new Error('a route without a caller')
      const gone = new AbortController()
      // Who left while the credentials were looked at is not told of again.
      if (reply.raw.destroyed) gone.abort()
      else reply.raw.once('close', () => gone.abort())
      const answer = await route.run({
        params: withoutAction(request.params, action),
        query: request.query,
        body: request.body,
        caller,
        signal: gone.signal,
      })
      if (route.reply === undefined && route.status !== 204) {
        reply.hijack()
        await sendEvents(reply.raw, answer as EventStream, caller.isGood)
        return reply
      }
      reply.code(route.status ?? 200)
      if (route.status === 204) return reply.send()
      return reply.type('application/json; charset=utf-8').send(jsonBody(answer ?? null))
    },
  })
}

/** A long answer is written as fast as it is taken: as one text it would take its time, and so would sending that. */
function jsonBody(answer: unknown): string | Readable {
  const pieces = jsonPieces(answer)
  let begin = ''
  while (begin.length < AT_ONCE_CHARACTERS) {
    const next = pieces.next()
    if (next.done === true) return begin
    begin += next.value
  }
  const all = (function* () {
    yield begin
    yield* pieces
  })()
  return Readable.from(piecesInSlices(all), { highWaterMark: 1 })
}

const AT_ONCE_CHARACTERS = 64 * 1024

/** The router has no action behind a parameter: it is taken off there. `/v1/tokens:inspect` is a path of its own. */
function splitAction(path: string): { readonly base: string; readonly action: string | undefined } {
  const [, front, action] = /^(.*\})(:[a-z]+)$/.exec(path) ?? []
  const base = (front ?? path).replaceAll(':', '::').replaceAll(/\{([a-zA-Z]+)\}/g, ':$1')
  return { base, action }
}

/** @throws AdminError `not_found` when the action is another one */
function withoutAction(params: unknown, action: string | undefined): unknown {
  if (action === undefined) return params
  const entries = Object.entries(params as Record<string, string>)
  const [name, value] = entries.at(-1) ?? ['', '']
  if (!value.endsWith(action)) throw new AdminError('not_found', 'there is no such route')
  return { ...Object.fromEntries(entries), [name]: value.slice(0, -action.length) }
}

function refuse(reply: FastifyReply, error: AdminError): FastifyReply {
  const { code, message, faults, retryAfterSeconds } = error
  if (retryAfterSeconds !== undefined) reply.header('retry-after', retryAfterSeconds)
  if (statusOf(code) === 401) reply.header('www-authenticate', 'Bearer realm="sallyport-admin"')
  return reply.code(statusOf(code)).send({ error: code, message, advice: adviceOf(code), ...(faults && { faults }) })
}

/** Faults of a request that the server itself found, and those of state and policy; `undefined` for anything else. */
function adminErrorOf(error: unknown): AdminError | undefined {
  if (error instanceof AdminError) return error
  if (error instanceof SallyportError) {
    if (error.code === 'SALLYPORT_STATE_UNUSABLE') return new AdminError('state_unusable', error.message)
    if (error.code === 'SALLYPORT_POLICY_INVALID') return new AdminError('policy_invalid', error.message)
    return undefined
  }
  const { statusCode } = error as { readonly statusCode?: unknown }
  if (statusCode === 413) return new AdminError('body_too_large', 'the body is larger than this route takes')
  if (statusCode === 415) return new AdminError('media_type_not_supported', 'the body is not JSON by its content type')
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500)
    return new AdminError('request_malformed', 'the request can not be read')
  return undefined
}

function tlsOptions({ cert, key, clientCa }: TlsMaterial): https.ServerOptions {
  return {
    cert,
    key,
    minVersion: 'TLSv1.2',
    // Who shows none, or one of somebody else, may still bring a token.
    ...(clientCa !== undefined && { ca: clientCa, requestCert: true, rejectUnauthorized: false }),
  }
}

async function listenOn(server: http.Server, address: ListenAddress): Promise<void> {
  if (address.kind === 'unix') await removeStale(address.path, listenText(address))
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    const listening = () => {
      server.off('error', reject)
      resolve()
    }
    if (address.kind === 'tcp') server.listen({ host: address.host, port: address.port }, listening)
    else {
      // The socket is made inside of this call, so nobody else can open it for a moment.
      const before = process.umask(0o177)
      try {
        server.listen({ path: address.path }, listening)
      } finally {
        process.umask(before)
      }
    }
  })
}

async function closeAll(app: FastifyInstance, server: http.Server): Promise<void> {
  const closed = new Promise<void>((resolve) => (server.listening ? server.close(() => resolve()) : resolve()))
  server.closeAllConnections()
  await closed
  await app.close()
}

function listenError(address: ListenAddress, error: unknown): SallyportError {
  if (error instanceof SallyportError) return error
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
