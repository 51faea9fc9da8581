/**
 * Stands for E2B: its API with the state that it keeps, and the way to each machine's envd. Holds every request, and every reply of its own, to the
 * contracts; a fault is kept for the test and answered with 400. Can be told to misbehave.
 */
import { randomBytes } from 'node:crypto'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { readContract } from './contract.ts'
import { type EnvdPlace, passOn } from './data-plane.ts'
import { refusedNetwork } from './refused-network.ts'

/** A machine, as whoever makes one gives it. */
export interface E2bMachine {
  readonly envd: EnvdPlace
  /** Its firewall is told anew; absent where nothing is in the way of what runs there. */
  readonly setNetwork?: (network: E2bNetwork) => Promise<void>
  readonly stop: () => Promise<void>
}

/** What the firewall of a machine was told. */
export interface E2bNetwork {
  readonly allowOut?: readonly string[]
  readonly denyOut?: readonly string[]
  readonly allowPublicTraffic?: boolean
  readonly egressProxy?: { readonly address: string; readonly username?: string; readonly password?: string } | null
}

export interface E2bServerOptions {
  readonly apiKey: string
  readonly templates?: readonly string[]
  readonly envdVersion?: string
  /** At most so many at a time. */
  readonly quota?: number
  /** Whether teams may name a proxy of their own. */
  readonly egressProxies?: boolean
  /**
   * Whether such a proxy may be at an internal address. The platform refuses that, but for its own developers; here a test says so whose gateway is on
   * loopback.
   */
  readonly internalProxies?: boolean
  readonly boot: (network: E2bNetwork, metadata: Readonly<Record<string, string>>) => Promise<E2bMachine>
}

interface Kept {
  readonly id: string
  readonly accessToken: string
  readonly templateID: string
  readonly metadata: Record<string, string>
  readonly startedAt: string
  endAtMs: number
  network: E2bNetwork
  readonly machine: E2bMachine
  timer?: NodeJS.Timeout
}

/** One request to the API. */
export interface LoggedCall {
  readonly method: string
  readonly path: string
  readonly body: unknown
  readonly status: number
}

/** How one kind of request is spoilt: `METHOD /path` with `{id}` for an id; of envd the path alone. */
export type Misbehaviour = (request: http.IncomingMessage, response: http.ServerResponse) => void

export interface E2bServer {
  readonly apiUrl: string
  readonly sandboxUrl: string
  readonly calls: readonly LoggedCall[]
  readonly faults: readonly string[]
  readonly running: () => readonly { readonly id: string; readonly metadata: Readonly<Record<string, string>>; readonly network: E2bNetwork; readonly endAtMs: number }[] // prettier-ignore
  /** The next `times` requests of the kind; for good when left out. Undefined: well again. */
  readonly misbehave: (kind: string, how: Misbehaviour | undefined, times?: number) => void
  /** The next request of the kind is carried out, and nobody hears of it. */
  readonly loseReply: (kind: string) => void
  /** Lists show what is gone, from now on. */
  readonly goStale: () => void
  readonly close: () => Promise<void>
}

const IDS = /[a-z0-9]{20}/
const PAGE = 2

/** On loopback. */
export async function startE2bServer(options: E2bServerOptions): Promise<E2bServer> {
  const { apiKey, templates = ['base'], envdVersion = '0.6.4', quota = 100 } = options
  const contract = readContract()
  const kept = new Map<string, Kept>()
  const gone: Kept[] = []
  const calls: LoggedCall[] = []
  const faults: string[] = []
  const spoilt = new Map<string, { readonly how: Misbehaviour; times: number }>()
  let isStale = false
  let lostKind: string | undefined

  const end = async (sandbox: Kept): Promise<void> => {
    kept.delete(sandbox.id)
    gone.push(sandbox)
    clearTimeout(sandbox.timer)
    await sandbox.machine.stop()
  }
  const live = (sandbox: Kept, seconds: number): void => {
    clearTimeout(sandbox.timer)
    sandbox.endAtMs = Date.now() + seconds * 1_000
    sandbox.timer = setTimeout(() => void end(sandbox), seconds * 1_000)
  }
  const listed = (sandbox: Kept) => ({
    sandboxID: sandbox.id,
    templateID: sandbox.templateID,
    clientID: 'deprecated',
    startedAt: sandbox.startedAt,
    endAt: new Date(sandbox.endAtMs).toISOString(),
    cpuCount: 2,
    memoryMB: 512,
    diskSizeMB: 1_024,
    envdVersion,
    metadata: sandbox.metadata,
    state: 'running',
  })
  const shown = (sandbox: Kept) => ({ sandboxID: sandbox.id, templateID: sandbox.templateID, clientID: 'deprecated', envdVersion, envdAccessToken: sandbox.accessToken }) // prettier-ignore

  const answer = async (
    method: string,
    path: string,
    query: URLSearchParams,
    body: Record<string, unknown>,
  ): Promise<[number, unknown?, Record<string, string>?]> => {
    const id = IDS.exec(path)?.[0] ?? ''
    const sandbox = kept.get(id)
    const kind = `${method} ${path.replace(IDS, '{id}')}`
    if (kind === 'POST /v2/sandboxes') {
      const { templateID, timeout = 300, metadata = {}, network = {} } = body as { templateID: string; timeout?: number; metadata?: Record<string, string>; network?: E2bNetwork } // prettier-ignore
      if (!templates.includes(templateID)) return [404, { code: 404, message: `template '${templateID}' not found` }]
      const refusal = await refusedNetwork(network, options)
      if (refusal !== undefined) return refusal
      if (kept.size >= quota) return [429, { code: 429, message: `you have reached the maximum number of concurrent E2B sandboxes (${quota})` }] // prettier-ignore
      const made: Kept = { id: randomBytes(10).toString('hex'), accessToken: randomBytes(16).toString('hex'), templateID, metadata, startedAt: new Date().toISOString(), endAtMs: 0, network, machine: await options.boot(network, metadata) } // prettier-ignore
      kept.set(made.id, made)
      live(made, timeout)
      return [201, shown(made)]
    }
    if (kind === 'GET /v2/sandboxes') {
      const wanted = new URLSearchParams(query.get('metadata') ?? '')
      const matching = [...(isStale ? gone : []), ...kept.values()].filter(({ metadata }) =>
        [...wanted].every(([name, value]) => metadata[decodeURIComponent(name)] === decodeURIComponent(value)),
      )
      const from = Number(query.get('nextToken') ?? 0)
      // Short pages, so that whoever reads but the first is found out.
      const next = from + PAGE < matching.length ? { 'x-next-token': String(from + PAGE) } : {}
      return [200, matching.slice(from, from + PAGE).map(listed), next]
    }
    if (sandbox === undefined) return [404, { code: 404, message: `sandbox "${id}" not found` }]
    switch (kind) {
      case 'GET /sandboxes/{id}':
        return [200, listed(sandbox)]
      case 'DELETE /sandboxes/{id}':
        await end(sandbox)
        return [204]
      case 'POST /sandboxes/{id}/timeout':
        live(sandbox, body['timeout'] as number)
        return [204]
      case 'POST /v2/sandboxes/{id}/connect': {
        const seconds = (body['timeout'] as number | undefined) ?? 300
        // Only ever longer.
        if (Date.now() + seconds * 1_000 > sandbox.endAtMs) live(sandbox, seconds)
        return [200, shown(sandbox)]
      }
      case 'PUT /sandboxes/{id}/network': {
        const refusal = await refusedNetwork(body, options)
        if (refusal !== undefined) return refusal
        // Whatever is not said again is gone.
        sandbox.network = body
        await sandbox.machine.setNetwork?.(body)
        return [204]
      }
      default:
        return [404, { code: 404, message: 'no such route' }]
    }
  }

  const takeSpoilt = (kind: string): Misbehaviour | undefined => {
    const found = spoilt.get(kind)
    if (found === undefined) return undefined
    if (--found.times <= 0) spoilt.delete(kind)
    return found.how
  }

  const api = http.createServer((request, response) => {
    const { method = 'GET', url = '/' } = request
    const { pathname, searchParams } = new URL(url, 'http://e2b')
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const how = takeSpoilt(`${method} ${pathname.replace(IDS, '{id}')}`)
      if (how !== undefined) {
        calls.push({ method, path: pathname, body: undefined, status: 0 })
        how(request, response)
        return
      }
      const text = Buffer.concat(pieces).toString()
      const body = text === '' ? undefined : (JSON.parse(text) as Record<string, unknown>)
      const reply = (status: number, value?: unknown, headers: Record<string, string> = {}): void => {
        response.writeHead(status, { 'content-type': 'application/json', ...headers })
        response.end(value === undefined ? '' : JSON.stringify(value))
      }
      if (request.headers['x-api-key'] !== apiKey) {
        reply(401, { code: 401, message: 'Invalid API key' })
        return
      }
      void answer(method, pathname, searchParams, body ?? {}).then(
        ([status, value, headers]) => {
          const found = contract.api({ method, path: pathname, query: searchParams, body, status, reply: value })
          faults.push(...found)
          calls.push({ method, path: pathname, body, status })
          if (lostKind === `${method} ${pathname.replace(IDS, '{id}')}`) {
            lostKind = undefined
            response.destroy()
          } else if (found.length > 0) reply(400, { code: 400, message: found.join('; ') })
          else reply(status, value, headers)
        },
        (error: unknown) => reply(500, { code: 500, message: String(error) }),
      )
    })
  })
  const machines = http.createServer((request, response) => {
    passOn(
      {
        contract,
        placeOf: (id, token) => {
          const sandbox = kept.get(id)
          return sandbox === undefined ? undefined : sandbox.accessToken === token ? sandbox.machine.envd : 'unauthorized' // prettier-ignore
        },
        fault: (fault) => faults.push(fault),
        misbehave: (asked, answering) => {
          const how = takeSpoilt(new URL(asked.url ?? '/', 'http://envd').pathname)
          how?.(asked, answering)
          return how !== undefined
        },
      },
      request,
      response,
    )
  })
  const [apiUrl, sandboxUrl] = await Promise.all([api, machines].map(listen))
  return {
    apiUrl: apiUrl ?? '',
    sandboxUrl: sandboxUrl ?? '',
    calls,
    faults,
    running: () => [...kept.values()].map(({ id, metadata, network, endAtMs }) => ({ id, metadata, network, endAtMs })),
    misbehave: (kind, how, times = Infinity) => {
      if (how === undefined) spoilt.delete(kind)
      else spoilt.set(kind, { how, times })
    },
    loseReply: (kind) => (lostKind = kind),
    goStale: () => (isStale = true),
    close: async () => {
      await Promise.all([...kept.values()].map(end))
      for (const server of [api, machines]) {
        server.closeAllConnections()
        await new Promise((resolve) => server.close(resolve))
      }
    },
  }
}

async function listen(server: http.Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
