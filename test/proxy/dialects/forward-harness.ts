/** A forwarder behind a real listener, raw clients and raw origins on loopback. Decisions are made by a stub: the table of hosts below. */
import { once } from 'node:events'
import net from 'node:net'
import { decideAddresses, hostText, parseAuthority } from '../../../policies/index.ts'
import { systemClock } from '../../../proxy/clock.ts'
import {
  createForwarder,
  type Exchange,
  type ExchangeResult,
  type Forwarder,
  type ForwarderDeps,
} from '../../../proxy/dialects/forward.ts'
import type { Authorized, ConnectionRequest, Refusal } from '../../../proxy/request.ts'
import { address, EVERYWHERE, OPEN } from '../egress/permits.ts'

/** What reached the stub that stands for the audit log. */
export interface Recorded {
  readonly request: ConnectionRequest
  readonly outcome: Authorized | Refusal
  readonly dialled: string | undefined
}

/** The bearer value that the stub accepts. */
export const GOOD = 'Proxy-Authorization: Bearer good\r\n'

export class Harness {
  readonly forwarder: Forwarder
  readonly decisions: Recorded[] = []
  readonly closes: { readonly request: ConnectionRequest; readonly result: ExchangeResult }[] = []
  readonly exchanges: Exchange[] = []
  /** Those of {@link exchanges} that were said to be over. */
  readonly ended: Exchange[] = []
  readonly faults: unknown[] = []
  /** Host names that lead to these ports of 127.0.0.1, whatever port the request names. */
  readonly ports = new Map<string, number>()
  /** What every name resolves to, for the decision. */
  address = '127.0.0.1'
  dials = 0
  /** Clients whose end or reset has come in. */
  clientsLeft = 0
  released = 0
  admitted = 0
  writable = true
  beforeAuthorize: (request: ConnectionRequest) => Promise<void> | void = () => undefined
  readonly upstreams = new Set<net.Socket>()
  readonly #listener: net.Server
  readonly #clients = new Set<net.Socket>()
  #waiters: (() => void)[] = []

  constructor(overrides: Partial<ForwarderDeps> = {}) {
    let ids = 0
    this.forwarder = createForwarder({
      clock: systemClock,
      newRequestId: () => `req-${String(++ids)}`,
      readCredentials: (value) => (value === undefined ? { kind: 'none' } : { kind: 'token', token: value }),
      authorize: (request) => this.#authorize(request),
      dialPlain: async (_request, { permit }) => {
        this.dials++
        const socket = net.connect(this.ports.get(hostText(permit.destination)) ?? 1, '127.0.0.1')
        const failed = await Promise.race([
          once(socket, 'connect').then(() => false),
          once(socket, 'error').then(() => true),
        ]).catch(() => true)
        if (failed) return { ok: false, reason: 'connect_refused' }
        this.upstreams.add(socket)
        socket.once('close', () => {
          this.upstreams.delete(socket)
          this.#wake()
        })
        return { ok: true, socket, dialled: '127.0.0.1', connectMs: 1 }
      },
      recordDecision: (request, outcome, goingOut) => {
        this.decisions.push({ request, outcome, dialled: goingOut?.dialled })
        this.#wake()
        return Promise.resolve(this.writable)
      },
      recordClose: (request, _authorized, result) => {
        this.closes.push({ request, result })
        this.#wake()
      },
      onExchange: (_request, _authorized, exchange) => {
        this.exchanges.push(exchange)
        this.#wake()
        return () => this.ended.push(exchange)
      },
      onFault: (error) => this.faults.push(error),
      ...overrides,
    })
    this.#listener = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.#clients.add(socket)
      let left = false
      const leave = (): void => {
        if (!left) this.clientsLeft += 1
        left = true
        this.#wake()
      }
      socket.once('end', leave)
      socket.once('close', () => {
        this.#clients.delete(socket)
        leave()
      })
      this.forwarder.serve(socket, { address: '127.0.0.1', port: socket.remotePort ?? 0 })
    })
  }

  /** Open client connections. */
  get connections(): number {
    return this.#clients.size
  }

  async start(): Promise<void> {
    this.#listener.listen(0, '127.0.0.1')
    await once(this.#listener, 'listening')
  }

  async connect(): Promise<RawClient> {
    return new RawClient(await this.open())
  }

  async open(): Promise<net.Socket> {
    const { port } = this.#listener.address() as net.AddressInfo
    const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    await once(socket, 'connect')
    return socket
  }

  /** Resolves once `condition` holds; it is looked at whenever something is recorded. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#waiters.push(resolve))
  }

  async stop(): Promise<void> {
    this.forwarder.close()
    for (const socket of this.#clients) socket.destroy()
    this.#listener.close()
    await once(this.#listener, 'close')
    await this.until(() => this.#clients.size === 0 && this.upstreams.size === 0)
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake()
  }

  async #authorize(request: ConnectionRequest): Promise<Authorized | Refusal> {
    await this.beforeAuthorize(request)
    const parsed = parseAuthority(request.target)
    if (!parsed.ok) return { ok: false, reason: 'target_malformed' }
    const destination = parsed.value
    if (request.credentials.kind === 'none') return { ok: false, reason: 'token_missing', destination }
    if (request.credentials.kind === 'token' && request.credentials.token !== 'Bearer good') {
      return { ok: false, reason: 'token_signature_invalid', destination }
    }
    if (!this.ports.has(hostText(destination))) return { ok: false, reason: 'host_not_allowed', destination }
    const verdict = decideAddresses(OPEN, destination, [address(this.address)], EVERYWHERE)
    if (verdict.effective === 'deny') return { ok: false, reason: verdict.reason, destination }
    this.admitted++
    const identity = {
      tokenId: 't',
      issuer: 'i',
      keyId: undefined,
      sandbox: 's',
      tenant: undefined,
    } as Authorized['identity']
    const place = { addBytes: () => false, release: () => (this.released += 1) }
    const decidedBy = { layers: OPEN, network: EVERYWHERE }
    return { ok: true, identity, destination, permit: verdict.permit, decidedBy, expiresAtMs: Infinity, place }
  }
}

/** A client that sends bytes and waits for bytes. */
export class RawClient {
  readonly socket: net.Socket
  ended = false
  closed = false
  #received = ''
  #waiters: (() => void)[] = []

  constructor(socket: net.Socket) {
    this.socket = socket
    const wake = (): void => {
      for (const waiter of this.#waiters.splice(0)) waiter()
    }
    socket.on('data', (bytes) => {
      this.#received += bytes.toString('latin1')
      wake()
    })
    socket.on('end', () => {
      this.ended = true
      wake()
    })
    socket.on('error', () => undefined)
    socket.on('close', () => {
      this.closed = true
      wake()
    })
  }

  send(text: string): void {
    this.socket.write(Buffer.from(text, 'latin1'))
  }

  /** Everything that has come and was not taken. */
  get pending(): string {
    return this.#received
  }

  /** Takes everything up to and including the first match. Throws when the connection ends before. */
  async take(pattern: RegExp): Promise<string> {
    for (;;) {
      const match = pattern.exec(this.#received)
      if (match !== null) {
        const end = match.index + match[0].length
        const taken = this.#received.slice(0, end)
        this.#received = this.#received.slice(end)
        return taken
      }
      if (this.ended || this.closed)
        throw new Error(`ended before ${String(pattern)}: ${JSON.stringify(this.#received.slice(0, 2_000))}`)
      await new Promise<void>((resolve) => this.#waiters.push(resolve))
    }
  }

  /** One answer: its head, and the body that its length tells. */
  async answer(options: { readonly head?: boolean } = {}): Promise<Answer> {
    const head = await this.take(/^[^]*?\r\n\r\n/)
    const answer = readAnswer(head)
    const length = answer.all('content-length')[0]
    if (options.head === true || ['204', '304'].includes(answer.status) || answer.status.startsWith('1')) return answer
    if (answer.all('transfer-encoding')[0] === 'chunked')
      return { ...answer, body: dechunk(await this.take(/^(?:[0-9a-f]+\r\n[^]*?\r\n)*?0\r\n(?:[^\r\n]+\r\n)*\r\n/)) }
    if (length === undefined) return { ...answer, body: await this.rest() }
    return { ...answer, body: length === '0' ? '' : await this.take(new RegExp(`^[^]{${length}}`)) }
  }

  /** Everything until the other side ends. */
  async rest(): Promise<string> {
    while (!this.ended && !this.closed) await new Promise<void>((resolve) => this.#waiters.push(resolve))
    const rest = this.#received
    this.#received = ''
    return rest
  }

  destroy(): void {
    this.socket.destroy()
  }
}

export interface Answer {
  readonly head: string
  readonly status: string
  readonly phrase: string
  readonly all: (name: string) => string[]
  readonly body: string
}

function readAnswer(head: string): Answer {
  const [statusLine = '', ...lines] = head.slice(0, -4).split('\r\n')
  const [, status = '', phrase = ''] = /^HTTP\/1\.1 ([0-9]{3}) (.*)$/.exec(statusLine) ?? []
  const all = (name: string): string[] =>
    lines
      .filter((line) => line.toLowerCase().startsWith(`${name}:`))
      .map((line) => line.slice(line.indexOf(':') + 1).trim())
  return { head, status, phrase, all, body: '' }
}

function dechunk(text: string): string {
  let body = ''
  let at = 0
  for (;;) {
    const lineEnd = text.indexOf('\r\n', at)
    const size = Number.parseInt(text.slice(at, lineEnd), 16)
    if (size === 0) return body
    body += text.slice(lineEnd + 2, lineEnd + 2 + size)
    at = lineEnd + 4 + size
  }
}

/** An origin that does as it is told with each connection, and keeps what it got. */
export class RawOrigin {
  /** One text for each connection, in order. */
  readonly got: string[] = []
  readonly sockets: net.Socket[] = []
  readonly #server: net.Server
  #waiters: (() => void)[] = []

  /** `script` is called with each connection; answers can be sent by `reply` once a head has come. */
  constructor(script: (socket: net.Socket, connection: OriginConnection) => void) {
    this.#server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      const index = this.got.push('') - 1
      this.sockets.push(socket)
      socket.on('error', () => undefined)
      socket.on('end', () => socket.end())
      socket.on('data', (bytes) => {
        this.got[index] = `${this.got[index] ?? ''}${bytes.toString('latin1')}`
        this.#wake()
      })
      socket.on('close', () => this.#wake())
      script(socket, {
        got: () => this.got[index] ?? '',
        until: (condition) => this.until(() => condition(this.got[index] ?? '')),
      })
    })
  }

  async start(): Promise<number> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
    return (this.#server.address() as net.AddressInfo).port
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#waiters.push(resolve))
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake()
  }
}

export interface OriginConnection {
  readonly got: () => string
  readonly until: (condition: (got: string) => boolean) => Promise<void>
}

/** A script that sends the same bytes for every head that comes. */
export function replyWith(bytes: string, afterwards: 'end' | 'keep' | 'reset' = 'keep') {
  return (socket: net.Socket): void => {
    let heads = 0
    let seen = ''
    socket.on('data', (chunk) => {
      seen += chunk.toString('latin1')
      const now = seen.split('\r\n\r\n').length - 1
      for (; heads < now; heads++) {
        if (afterwards === 'reset') socket.write(Buffer.from(bytes, 'latin1'), () => socket.resetAndDestroy())
        else if (afterwards === 'end') socket.end(Buffer.from(bytes, 'latin1'))
        else socket.write(Buffer.from(bytes, 'latin1'))
      }
    })
  }
}
