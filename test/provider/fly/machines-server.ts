/**
 * Stands in for Fly's Machines API: holds every request, and every reply of its own, to the description of the API, keeps state like the platform, limits
 * rates like it, and can be told to misbehave. Behind it machines are guests of this machine that run what deploy/fly puts into the image.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import type net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Guest } from '../elsewhere/guest.ts'
import { readSwagger } from '../swagger.ts'
import { BROKEN_IMAGES, bootMachine, type GuestConfig, IMAGE, makeImage } from './machine-guest.ts'

const DESCRIPTION = path.join(import.meta.dirname, '../../../../shared/contracts/fly/machines-subset.openapi.json')

/** Printed where it is missing. */
export const NO_DESCRIPTION = fs.existsSync(DESCRIPTION) ? undefined : `the description of Fly's Machines API is not at ${DESCRIPTION}: requests are not held to it` // prettier-ignore

type Json = Readonly<Record<string, unknown>>

/** One request, as it came. */
export interface LoggedRequest {
  readonly method: string
  /** Below `/v1/apps/APP`. */
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  readonly body: Json | undefined
  readonly headers: http.IncomingHttpHeaders
  readonly status: number
}

/** How the platform goes wrong. `lost` and `half` do what was asked first. */
export type Misbehaviour = 'limit' | 'error' | 'lost' | 'half' | 'hang' | 'html' | 'stale' | { readonly status: number; readonly body: Json } // prettier-ignore

interface MachineState {
  readonly id: string
  readonly name: string
  readonly region: string
  readonly version: string
  readonly createdAt: string
  readonly config: GuestConfig & Json
  state: string
  address?: string
  exitCode?: number
  guest?: Guest
  lease?: { nonce: string; expiresMs: number }
  readonly said: string[]
}

export interface FlyServer {
  readonly url: string
  readonly apiToken: string
  readonly app: string
  readonly log: () => readonly LoggedRequest[]
  /** What the description finds wrong, of requests and of replies. */
  readonly faults: () => readonly string[]
  /** The next `times` requests of this method and end of path go wrong so. */
  readonly misbehave: (method: string, pathEnd: string, how: Misbehaviour, times?: number) => void
  /** No further request goes wrong. */
  readonly behave: () => void
  readonly machines: () => readonly { readonly id: string; readonly name: string; readonly state: string; readonly config: Json }[] // prettier-ignore
  readonly machine: (id: string) => { state: string; readonly guest?: Guest; readonly said: readonly string[] } | undefined // prettier-ignore
  /** Of the app; replaced as a whole. */
  policies: Json[]
  /** Somebody else's. */
  readonly lease: (machineId: string, forMs: number) => void
  readonly close: () => Promise<void>
}

class Refusal extends Error {
  readonly status: number
  readonly code: string | undefined
  constructor(status: number, message: string, code?: string) {
    super(message)
    this.status = status
    this.code = code
  }
}

const REGIONS = ['fra', 'ams', 'iad']
const STATE_DELAY_MS = 30

/** `bootable` false: machines get as far as `started`, and there is nothing in them. */
export async function startFlyServer({ bootable = true, rateLimit = true } = {}): Promise<FlyServer> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spy-'))
  makeImage(folder)
  const check = NO_DESCRIPTION === undefined ? readSwagger(DESCRIPTION) : () => []
  const apiToken = `fm2_${randomBytes(24).toString('base64url')}`
  const app = 'sandboxes'
  const machines = new Map<string, MachineState>()
  const log: LoggedRequest[] = []
  const faults: string[] = []
  const wrongs: { method: string; pathEnd: string; how: Misbehaviour; times: number }[] = []
  const buckets = new Map<string, { tokens: number; atMs: number }>()
  const work = new Set<Promise<unknown>>()
  let oldList: MachineState[] = []
  const server: FlyServer = {
    url: '',
    apiToken,
    app,
    log: () => log,
    faults: () => faults,
    misbehave: (method, pathEnd, how, times = 1) => wrongs.push({ method, pathEnd, how, times }),
    behave: () => void wrongs.splice(0),
    machines: () => [...machines.values()].filter(({ state }) => state !== 'destroyed'),
    machine: (id) => machines.get(id),
    policies: [],
    lease: (id, forMs) => {
      const machine = machines.get(id)
      if (machine !== undefined) machine.lease = { nonce: 'of-somebody-else', expiresMs: Date.now() + forMs }
    },
    close: async () => {
      for (const machine of machines.values()) await machine.guest?.stop()
      await Promise.allSettled(work)
      listener.closeAllConnections()
      listener.close()
      await once(listener, 'close')
      fs.rmSync(folder, { recursive: true })
    },
  }

  /** 1 a second for each action and machine, 3 at once; reading 5 and 10. */
  const spend = (method: string, route: string): void => {
    if (!rateLimit) return
    const [rate, burst] = method === 'GET' ? [5, 10] : [1, 3]
    const key = `${method} ${route}`
    const bucket = buckets.get(key) ?? { tokens: burst, atMs: Date.now() }
    bucket.tokens = Math.min(burst, bucket.tokens + ((Date.now() - bucket.atMs) / 1_000) * rate)
    bucket.atMs = Date.now()
    buckets.set(key, bucket)
    if (bucket.tokens < 1) throw new Refusal(429, 'rate limit exceeded')
    bucket.tokens--
  }

  const shown = (machine: MachineState): Json => ({
    id: machine.id,
    name: machine.name,
    state: machine.state,
    region: machine.region,
    version: machine.version,
    instance_id: machine.version,
    created_at: machine.createdAt,
    config: machine.config,
    host_status: 'ok',
    ...(machine.address !== undefined && { private_ip: machine.address }),
    events: [
      ...(machine.exitCode === undefined ? [] : [{ id: 'e2', type: 'exit', status: 'stopped', source: 'flyd', timestamp: Date.now(), request: { exit_event: { exit_code: machine.exitCode } } }]), // prettier-ignore
      { id: 'e1', type: 'launch', status: 'created', source: 'user', timestamp: Date.parse(machine.createdAt) },
    ],
  })

  const boot = async (machine: MachineState): Promise<void> => {
    await delay(STATE_DELAY_MS)
    machine.state = 'starting'
    if (machine.config.image === BROKEN_IMAGES.failing) {
      machine.state = 'failed'
      return
    }
    if (!bootable) {
      machine.address = 'fdaa:0:1::2'
      machine.state = 'started'
      return
    }
    try {
      const guest = await bootMachine(folder, machine.config, { port: allowedPort(server.policies, machine.config) }, (text) => machine.said.push(text)) // prettier-ignore
      // It may be ordered away meanwhile.
      if (machine.state !== 'starting') {
        await guest.stop()
        return
      }
      machine.guest = guest
      machine.address = guest.address
      machine.state = 'started'
      void guest.ended.then(async () => {
        const code = guest.exitCode()
        if (code !== undefined) machine.exitCode = code
        if (machine.state !== 'started') return
        machine.state = 'stopped'
        // The platform removes it a little later.
        await delay(1_500)
        if (machine.config['auto_destroy'] === true) machine.state = 'destroyed'
      })
    } catch (error) {
      machine.said.push(String(error))
      machine.state = 'failed'
    }
  }

  const create = (body: Json): Json => {
    const { name, config, region = 'fra' } = body as { name?: string; region?: string; config: GuestConfig & Json }
    if (!REGIONS.includes(region)) throw new Refusal(400, `region ${region} not found`)
    if (![IMAGE, ...Object.values<string>(BROKEN_IMAGES)].includes(config.image))
      throw new Refusal(400, `failed to get manifest ${config.image}: not found`)
    const called = name ?? randomBytes(4).toString('hex')
    if (server.machines().some((each) => each.name === called))
      throw new Refusal(422, `unique machine name violation: machine already exists with name ${called}`, 'name_taken')
    const id = randomBytes(7).toString('hex')
    const machine: MachineState = { id, name: called, region, version: randomBytes(8).toString('hex'), createdAt: new Date().toISOString(), config, state: 'created', said: [] } // prettier-ignore
    machines.set(id, machine)
    const booting = boot(machine)
    work.add(booting)
    return shown(machine)
  }

  const remove = async (machine: MachineState): Promise<void> => {
    machine.state = 'destroying'
    await delay(STATE_DELAY_MS)
    await machine.guest?.stop()
    machine.state = 'destroyed'
  }

  const wait = async (machine: MachineState, query: URLSearchParams, signal: AbortSignal): Promise<Json> => {
    const wanted = query.get('state') ?? 'started'
    const endMs = Date.now() + Number(query.get('timeout') ?? 60) * 1_000
    while (machine.state !== wanted) {
      if (wanted === 'started' && ['failed', 'stopped', 'destroyed'].includes(machine.state))
        throw new Refusal(400, `machine is ${machine.state}`)
      if (Date.now() >= endMs || signal.aborted)
        throw new Refusal(408, 'deadline_exceeded: timeout reached waiting for the machine')
      await delay(20)
    }
    return { ok: true, state: machine.state, version: machine.version, event_id: 'e1' }
  }

  const checkLease = (machine: MachineState, headers: http.IncomingHttpHeaders): void => {
    const { lease } = machine
    if (lease === undefined || lease.expiresMs < Date.now()) return
    if (headers['fly-machine-lease-nonce'] !== lease.nonce)
      throw new Refusal(409, 'machine ID has a lease held by somebody')
  }

  /** What it replies; undefined: nothing. */
  const answer = async (
    method: string,
    route: string,
    query: URLSearchParams,
    body: Json | undefined,
    request: http.IncomingMessage,
    response: http.ServerResponse,
  ): Promise<{ status: number; body?: unknown }> => {
    if (request.headers.authorization !== `Bearer ${apiToken}`) throw new Refusal(401, 'Authenticate: token validation error') // prettier-ignore
    const [, , , named, kind, id = '', action] = route.split('/')
    if (named !== app) throw new Refusal(404, 'app not found')
    spend(method, `${kind ?? ''}/${id}/${action ?? ''}`)
    if (kind === undefined) return { status: 200, body: { id: 'a1', name: app, status: 'deployed', network: 'tenant-1', machine_count: machines.size } } // prettier-ignore
    if (kind === 'network_policies') {
      if (method === 'GET') return { status: 200, body: server.policies }
      const policy = { id: randomBytes(4).toString('hex'), ...body }
      server.policies = [...server.policies.filter((each) => each['name'] !== (policy as Json)['name']), policy]
      return { status: 200, body: policy }
    }
    if (id === '') {
      if (method === 'POST') return { status: 200, body: create(body ?? {}) }
      return { status: 200, body: listed([...machines.values()], query, response) }
    }
    const machine = machines.get(id)
    if (machine === undefined || (machine.state === 'destroyed' && action !== 'wait')) throw new Refusal(404, 'machine not found') // prettier-ignore
    if (action === 'wait') return { status: 200, body: await wait(machine, query, AbortSignal.any([])) }
    if (action === 'exec') {
      if (machine.guest === undefined) throw new Refusal(400, 'machine is not running')
      const { exitCode, stdout, stderr } = await machine.guest.exec((body?.['command'] ?? []) as string[])
      return { status: 200, body: { exit_code: exitCode, exit_signal: 0, stdout, stderr } }
    }
    if (action === 'lease') {
      checkLease(machine, request.headers)
      machine.lease = { nonce: randomBytes(6).toString('hex'), expiresMs: Date.now() + Number(body?.['ttl'] ?? 1) * 1_000 } // prettier-ignore
      return { status: 201, body: { nonce: machine.lease.nonce, expires_at: Math.floor(machine.lease.expiresMs / 1_000), owner: 'me', version: machine.version } } // prettier-ignore
    }
    if (method === 'DELETE') {
      checkLease(machine, request.headers)
      if (machine.state === 'started' && query.get('force') !== 'true')
        throw new Refusal(412, 'failed precondition: unable to destroy machine, not currently stopped')
      work.add(remove(machine))
      return { status: 200 }
    }
    return { status: 200, body: shown(machine) }
  }

  /** Pages of two with an empty one between, so that whoever stops at a short page is found out. */
  const listed = (all: MachineState[], query: URLSearchParams, response: http.ServerResponse): Json[] => {
    const wrong = takeWrong('GET', '/machines', 'stale')
    const present = wrong === undefined ? all : oldList
    if (wrong === undefined) oldList = all.map((machine) => ({ ...machine }))
    const filters = [...query].filter(([name]) => name.startsWith('metadata.'))
    const metadata = (machine: MachineState) => (machine.config['metadata'] ?? {}) as Readonly<Record<string, string>>
    const matching = present.filter((machine) => (machine.state !== 'destroyed' || query.get('include_deleted') === 'true') && filters.every(([name, value]) => metadata(machine)[name.slice('metadata.'.length)] === value)) // prettier-ignore
    const [from = 0, isAfterEmpty = 0] = (query.get('cursor') ?? '0.1').split('.').map(Number)
    if (isAfterEmpty === 0) {
      response.setHeader('fly-next-cursor', `${from}.1`)
      return []
    }
    if (from + 2 < matching.length) response.setHeader('fly-next-cursor', `${from + 2}.0`)
    return matching.slice(from, from + 2).map(shown)
  }

  const takeWrong = (method: string, route: string, only?: Misbehaviour): Misbehaviour | undefined => {
    const wrong = wrongs.find((each) => each.times > 0 && each.method === method && route.endsWith(each.pathEnd) && (only === undefined ? each.how !== 'stale' : each.how === only)) // prettier-ignore
    if (wrong === undefined) return undefined
    wrong.times--
    return wrong.how
  }

  /** Whether requests and replies are as described. Refusals are described once for all. */
  const examine = (
    method: string,
    route: string,
    query: URLSearchParams,
    body: Json | undefined,
    status: number,
    reply: unknown,
  ): void => {
    // prettier-ignore
    const asDescribed = new URLSearchParams([...query].filter(([name]) => !name.startsWith('metadata.')))
    if ([...query.keys()].some((name) => name.startsWith('metadata.'))) asDescribed.set('metadata.{key}', 'x')
    const isRefusal = status >= 400
    const described = { method, path: route, query: asDescribed, body }
    const usual = [200, 201, 202, 204].find((each) => !check({ ...described, status: each }).some((fault) => fault.includes('status'))) ?? 200 // prettier-ignore
    faults.push(...check({ ...described, status: isRefusal ? usual : status, ...(!isRefusal && { reply }) }))
    if (isRefusal) faults.push(...check({ method: 'POST', path: '/v1/apps', query: new URLSearchParams(), body: {}, status: 400, reply })) // prettier-ignore
  }

  const handle = async (request: http.IncomingMessage, response: http.ServerResponse): Promise<void> => {
    const { method = '' } = request
    const url = new URL(request.url ?? '', 'http://api.test')
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece as Buffer)
    const text = Buffer.concat(pieces).toString()
    const body = text === '' ? undefined : (JSON.parse(text) as Json)
    const wrong = takeWrong(method, url.pathname)
    const { pathname, searchParams } = url
    let outcome: { status: number; body?: unknown }
    try {
      if (wrong === 'limit') {
        response.setHeader('retry-after', '1')
        throw new Refusal(429, 'rate limit exceeded')
      }
      if (wrong === 'error') throw new Refusal(500, 'internal error')
      if (typeof wrong === 'object') outcome = { status: wrong.status, body: wrong.body }
      else if (wrong === 'hang' || wrong === 'html') outcome = { status: 0 }
      else outcome = await answer(method, pathname, searchParams, body, request, response)
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      outcome = { status: error.status, body: { error: error.message, ...(error.code !== undefined && { status: error.code }) } } // prettier-ignore
    }
    log.push({ method, path: pathname.replace(`/v1/apps/${app}`, ''), query: Object.fromEntries(searchParams), body, headers: request.headers, status: outcome.status }) // prettier-ignore
    if (wrong === 'hang') return
    if (wrong === 'lost') return void response.socket?.destroy()
    if (wrong === 'html') return void response.writeHead(200, { 'content-type': 'text/html' }).end('<html>maintenance</html>') // prettier-ignore
    examine(method, pathname, searchParams, body, outcome.status, outcome.body)
    const reply = outcome.body === undefined ? '' : JSON.stringify(outcome.body)
    response.writeHead(outcome.status, { 'content-type': 'application/json', 'fly-request-id': randomBytes(8).toString('hex'), 'content-length': Buffer.byteLength(reply) }) // prettier-ignore
    if (wrong !== 'half') return void response.end(reply)
    response.write(reply.slice(0, Math.floor(reply.length / 2)))
    setTimeout(() => response.socket?.destroy(), 20)
  }
  const listener = http.createServer((request, response) => {
    handle(request, response).catch((error: unknown) => {
      faults.push(`the stand-in itself: ${String(error)}`)
      response.destroy()
    })
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  return Object.assign(server, { url: `http://127.0.0.1:${(listener.address() as net.AddressInfo).port}` })
}

/** The one port that a machine may connect to. @throws Error where there is not just one: no machine runs that is open */
function allowedPort(policies: readonly Json[], config: Json): number {
  const metadata = (config['metadata'] ?? {}) as Readonly<Record<string, string>>
  const holding = policies.filter(({ selector }) => {
    const { all, metadata: wanted } = selector as { all?: boolean; metadata?: Record<string, string> }
    return all === true || (wanted !== undefined && Object.entries(wanted).every(([name, value]) => metadata[name] === value)) // prettier-ignore
  })
  const rules = holding.flatMap((policy) => policy['rules'] as { direction: string; ports: { port: number }[] }[])
  const ports = rules.filter(({ direction }) => direction === 'egress').flatMap((rule) => rule.ports)
  const [first] = ports
  if (first === undefined || ports.length > 1) throw new Error(`the machine may connect to ${ports.length} ports`)
  return first.port
}
