/** The worker's HTTP side: who may ask, and which route answers. */
import http from 'node:http'
import type net from 'node:net'
import { parseEnvironment, integer } from './command.ts'
import { discardRest } from './body.ts'
import type { WorkerContext } from './context.ts'
import { cancelCommand, execute } from './execute.ts'
import { Fault, faultOf, statusOf } from './fault.ts'
import {
  pathField,
  pathOf,
  readFileJson,
  readObject,
  receiveFile,
  sendFile,
  sendList,
  writeFileJson,
} from './file-routes.ts'
import { makeFolder, move, statFile } from './files.ts'
import { parseGatewayToken } from './gateway-way.ts'
import { remove } from './folders.ts'
import { feedProcess, signalProcess, startProcess, streamEnd, streamOutput } from './process-routes.ts'
import { queryField } from './path-text.ts'
import { probe } from './probe.ts'
import { parseToken } from './read-settings.ts'
import { PROTOCOL } from './wire.ts'

// Connections that have not shown the bearer; beyond this the oldest goes, so that strangers cannot lock the host out.
const MAX_STRANGERS = 256
const HEAD_TIMEOUT_MS = 10_000

/** A server that does not listen yet. */
export function createServer(context: WorkerContext): http.Server {
  const strangers = new Set<net.Socket>()
  const server = http.createServer(
    {
      headersTimeout: HEAD_TIMEOUT_MS,
      requestTimeout: 0,
      connectionsCheckingInterval: 5_000,
      maxHeaderSize: 16 * 1024,
      keepAlive: false,
    },
    (request, response) => {
      // Nobody asks for it, and to tell it loads the time zone.
      response.sendDate = false
      response.setHeader('connection', 'close')
      request.on('error', () => undefined)
      response.on('error', () => undefined)
      const known = isSame(
        Buffer.from(request.headers.authorization ?? '', 'latin1'),
        Buffer.from(`Bearer ${context.token}`),
      )
      if (known) strangers.delete(request.socket)
      const answer = known ? route(context, request, response) : answerStranger(request)
      answer.then(
        (body) => {
          if (!response.headersSent) reply(request, response, body === undefined ? 204 : 200, body)
        },
        (error: unknown) => {
          const fault = faultOf(error)
          if (response.headersSent) response.destroy()
          else reply(request, response, statusOf(fault), { error: { code: fault.code, message: fault.message } })
        },
      )
    },
  )
  server.on('connection', (socket) => {
    strangers.add(socket)
    socket.on('close', () => strangers.delete(socket))
    const [oldest] = strangers
    if (strangers.size > MAX_STRANGERS) oldest?.destroy()
  })
  server.on('clientError', (_error, socket) => socket.destroy())
  return server
}

/** What a route returns is the JSON of its reply, undefined an empty one; one that streams has answered by itself. */
async function route(
  context: WorkerContext,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): Promise<object | undefined> {
  const { confinement, processes } = context
  const [path = ''] = (request.url ?? '').split('?')
  const [, first, id = '', action] = path.split('/')
  switch (
    `${request.method ?? ''} ${first === 'processes' && id !== '' ? `/processes/{id}${action === undefined ? '' : `/${action}`}` : path}`
  ) {
    case 'GET /healthz':
      return health(context)
    case 'POST /configure':
      await configure(context, request)
      return undefined
    case 'POST /probe':
      return probe(await readObject(request))
    case 'POST /execute':
      await execute(context, request, response)
      return undefined
    case 'POST /processes':
      return startProcess(context, request)
    case 'GET /processes/{id}':
      return { id, running: processes.get(id).end === undefined }
    case 'GET /processes/{id}/output':
      await streamOutput(processes.get(id), response)
      return undefined
    case 'GET /processes/{id}/wait':
      await streamEnd(processes.get(id), response)
      return undefined
    case 'POST /processes/{id}/stdin':
      await feedProcess(processes.get(id), request, queryField(request.url ?? '', 'end') === '1')
      return undefined
    case 'POST /processes/{id}/signal':
      await signalProcess(processes.get(id), request)
      return undefined
    case 'GET /files':
      await sendFile(confinement, request, response)
      return undefined
    case 'PUT /files':
      return receiveFile(confinement, request)
    case 'GET /files/list':
      await sendList(confinement, request, response)
      return undefined
    case 'GET /files/stat':
      return { stat: (await statFile(confinement, pathOf(request))) ?? null }
    case 'POST /files/mkdir':
      await makeFolder(confinement, pathField(await readObject(request), 'path'))
      return undefined
    case 'POST /files/remove':
      await remove(confinement, pathField(await readObject(request), 'path'))
      return undefined
    case 'POST /files/move': {
      const fields = await readObject(request)
      await move(confinement, pathField(fields, 'from'), pathField(fields, 'to'))
      return undefined
    }
    case 'POST /read-file':
      return readFileJson(confinement, request)
    case 'POST /write-file':
      return writeFileJson(confinement, request)
  }
  if (request.method === 'DELETE' && first === 'execute' && id !== '' && action === undefined) {
    await cancelCommand(context, id)
    return undefined
  }
  throw new Fault('no_such_route', 'no such route')
}

function health({ commands, processes, confinement }: WorkerContext): object {
  return {
    status: 'ok',
    protocol: PROTOCOL,
    pid: process.pid,
    node: process.version,
    rootDir: confinement.rootDir,
    running: commands.size + processes.running,
    uptimeMs: Math.round(process.uptime() * 1000),
  }
}

async function configure(context: WorkerContext, request: http.IncomingMessage): Promise<void> {
  const fields = await readObject(request)
  const env = fields['env'] === undefined ? undefined : parseEnvironment(fields['env'])
  const timeToLiveMs = integer(fields, 'timeToLiveMs', 1, Number.MAX_SAFE_INTEGER)
  const gatewayToken = parseGatewayToken(fields['gatewayToken'])
  const token = fields['token'] === undefined ? undefined : parseToken(fields['token'])
  if (gatewayToken !== undefined) context.setGatewayToken(gatewayToken, fields['cutTunnels'] === true)
  if (env !== undefined) context.setEnvironment(env)
  if (timeToLiveMs !== undefined) context.setTimeToLive(timeToLiveMs)
  if (token !== undefined) context.setToken(token)
}

/** A platform's probe may know that the worker lives, and nothing more. */
function answerStranger(request: http.IncomingMessage): Promise<object> {
  if (request.method === 'GET' && request.url === '/healthz') return Promise.resolve({ status: 'ok' })
  return Promise.reject(new Fault('unauthorized', 'the bearer is missing or wrong'))
}

function reply(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  status: number,
  body: object | undefined,
): void {
  const bytes = body === undefined ? '' : `${JSON.stringify(body)}\n`
  response.writeHead(
    status,
    body === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(bytes) },
  )
  if (bytes === '') response.flushHeaders()
  else response.write(bytes)
  void discardRest(request).then(() => response.end())
}

/** Equal in a time that depends on the length of what was expected alone. By hand, since loading a crypto library costs a start 10 ms. */
function isSame(given: Buffer, expected: Buffer): boolean {
  let difference = given.length ^ expected.length
  for (let index = 0; index < expected.length; index++) difference |= (given[index] ?? 0) ^ (expected[index] ?? 0)
  return difference === 0
}
