/**
 * Runs inside, by itself: carries bytes between places that can not reach each other. `node link.mjs SETTINGS`.
 *
 * Where the host can not connect into a sandbox, the sandbox keeps idle connections to the host; the first byte on one takes it into use.
 * It uses nothing but Node, and is trusted as much as whoever else is in its container.
 */
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'

/** One end. */
export type LinkAddress = { readonly path: string } | { readonly host: string; readonly port: number }

/** What a link does. */
export interface LinkSettings {
  /** Places that must not answer, not even with a refusal; if one does, the link says so and ends with {@link EXIT_OPEN}. */
  readonly unreachable?: readonly { readonly host: string; readonly port: number }[]
  /** The engine's kernel, which must not be the one inside, or the link ends with {@link EXIT_SAME_KERNEL}. */
  readonly foreignKernel?: string
  readonly listeners?: readonly LinkListener[]
  readonly dialers?: readonly LinkDialer[]
  /** Milliseconds until it ends by itself. */
  readonly timeToLiveMs?: number
  /** What then runs in this very process: the worker and its settings. */
  readonly run?: { readonly script: string; readonly argument: string }
}

/** Accepts connections at one place and carries them to another. */
export interface LinkListener {
  /** `subnet` (IPv4, CIDR): at this machine's address in it, and at no other. */
  readonly listen: { readonly host: string; readonly port: number } | { readonly subnet: string; readonly port: number }
  readonly connect: LinkAddress
  /** Sent first. */
  readonly hello?: string
}

/** Keeps idle connections to one place and carries them to another once they are used. */
export interface LinkDialer {
  readonly dial: LinkAddress
  readonly connect: LinkAddress
  readonly idle: number
}

/** Something answered that must not. */
export const EXIT_OPEN = 70
/** The sandbox runs on the host's kernel. */
export const EXIT_SAME_KERNEL = 71

const PROBE_MS = 1_000
const FIRST_RETRY_MS = 20
const LAST_RETRY_MS = 1_000
const STEADY_MS = 2_000
const CONNECT_PATIENCE_MS = 15_000

/** Where it is mounted. Imported by anybody else, it does nothing by itself. */
const SELF = '/run/sallyport/bin/link.mjs'

const [, self, file] = process.argv
if (self === SELF && file !== undefined) await start(JSON.parse(fs.readFileSync(file, 'utf8')) as LinkSettings)

/** Resolves when everything is in place. */
export async function start(settings: LinkSettings): Promise<void> {
  const { foreignKernel, unreachable = [], listeners = [], dialers = [], timeToLiveMs, run } = settings
  if (foreignKernel !== undefined && os.release() === foreignKernel)
    leave(EXIT_SAME_KERNEL, `the kernel inside is the host's (${foreignKernel})`)
  const answering = (await Promise.all(unreachable.map(answers))).filter((each) => each !== undefined)
  if (answering.length > 0) leave(EXIT_OPEN, `from inside these answer: ${answering.join(', ')}`)
  if (timeToLiveMs !== undefined) endAfter(timeToLiveMs)
  await Promise.all(listeners.map(listen))
  for (const dialer of dialers) for (let index = 0; index < dialer.idle; index++) keepDialling(dialer, FIRST_RETRY_MS)
  if (run === undefined) return
  process.argv = [process.argv[0] ?? 'node', run.script, run.argument]
  await import(run.script)
}

/** A refusal is an answer as well: whoever refuses is there. */
function answers(address: { readonly host: string; readonly port: number }): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = net.connect(address)
    const end = (open: boolean): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(open ? `${address.host}:${address.port}` : undefined)
    }
    const timer = setTimeout(() => end(false), PROBE_MS)
    socket.once('connect', () => end(true))
    socket.once('error', (error: NodeJS.ErrnoException) =>
      end(error.code === 'ECONNREFUSED' || error.code === 'ECONNRESET'),
    )
  })
}

function listen({ listen, connect, hello }: LinkListener): Promise<void> {
  return new Promise((resolve, reject) => {
    const host = 'host' in listen ? listen.host : addressIn(listen.subnet)
    const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true }, (inner) => {
      const outer = dial(connect)
      if (hello !== undefined) outer.write(hello)
      join(inner, outer)
    })
    server.once('error', reject)
    server.listen({ host, port: listen.port }, () => {
      server.off('error', reject).on('error', () => undefined)
      resolve()
    })
  })
}

function keepDialling(dialer: LinkDialer, retryMs: number): void {
  const outer = dial(dialer.dial)
  const startedAtMs = performance.now()
  const again = (): void => {
    // One that is always taken and dropped at once, as by a relay whose host is gone, is no better than one that is refused.
    const delayMs = performance.now() - startedAtMs > STEADY_MS ? FIRST_RETRY_MS : retryMs
    setTimeout(() => keepDialling(dialer, Math.min(delayMs * 2, LAST_RETRY_MS)), delayMs)
  }
  outer.once('error', () => undefined)
  outer.once('close', again)
  outer.once('readable', () => {
    // At the end of a connection that nobody used.
    if (outer.readableLength === 0) return void outer.destroy()
    outer.off('close', again)
    keepDialling(dialer, FIRST_RETRY_MS)
    void connectPatiently(dialer.connect, Date.now() + CONNECT_PATIENCE_MS).then(
      (inner) => join(outer, inner),
      () => outer.destroy(),
    )
  })
}

/** What is to be reached may still be starting. */
async function connectPatiently(address: LinkAddress, untilMs: number): Promise<net.Socket> {
  for (;;) {
    const socket = dial(address)
    const connected = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(true))
      socket.once('error', () => resolve(false))
    })
    if (connected) return socket
    if (Date.now() > untilMs) throw new Error('nobody listens')
    await new Promise((resolve) => setTimeout(resolve, FIRST_RETRY_MS))
  }
}

function dial(address: LinkAddress): net.Socket {
  return net.connect({ ...address, allowHalfOpen: true, noDelay: true })
}

function join(one: net.Socket, other: net.Socket): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.on('error', () => to.destroy())
    from.once('close', () => {
      // One that ended in order leaves the other to send what it still has.
      if (!from.readableEnded) to.destroy()
    })
    from.pipe(to)
  }
}

function addressIn(subnet: string): string {
  const [base = '', bits = ''] = subnet.split('/')
  const within = new net.BlockList()
  within.addSubnet(base, Number(bits), 'ipv4')
  for (const each of Object.values(os.networkInterfaces()).flat()) {
    if (each?.family === 'IPv4' && within.check(each.address)) return each.address
  }
  throw new Error(`no address in ${subnet}`)
}

/** Wall-clock time, so that a pause counts. */
function endAfter(milliseconds: number): void {
  const untilMs = Date.now() + milliseconds
  const look = (): void => {
    const left = untilMs - Date.now()
    if (left <= 0) process.exit(0)
    setTimeout(look, Math.min(left, 10_000))
  }
  look()
}

function leave(status: number, message: string): never {
  fs.writeSync(2, `link: ${message}\n`)
  process.exit(status)
}
