/** Looks for a way out from where the commands run: which connections come about, and whether the gateway answers. Tries what it is told, once. */
import fs from 'node:fs'
import net from 'node:net'
import { integer, parseObject, text } from './command.ts'
import { Fault } from './fault.ts'

/** An address and a port. */
interface Target {
  readonly host: string
  readonly port: number
}

const MAX_TARGETS = 64
const MAX_TIMEOUT_MS = 10_000
const MAX_HEAD_BYTES = 16 * 1024
const NO_DEVICE = Promise.resolve('no_device')

/**
 * `POST /probe {tcp, udp, gateway, destination, timeoutMs}`: for each address `connected`, `timeout` or the errno's name, and the gateway's answer to a
 * CONNECT. A datagram socket is only connected, which looks for a route and sends nothing. Where the kernel has no device to send by, no datagram socket is
 * made and no IPv6 address is connected to, since either takes a start 10 ms, and the outcome is `no_device`.
 */
export async function probe(body: unknown): Promise<object> {
  const fields = parseObject(body)
  const timeoutMs = integer(fields, 'timeoutMs', 1, MAX_TIMEOUT_MS) ?? 1_000
  const hasNoDevice = hasLoopbackAlone()
  const isLiteral = hasNoDevice ? looksLikeAddress : isAddress
  const gateway = parseTarget(fields['gateway'], isLiteral)
  const destination = text(fields, 'destination') ?? ''
  if (!/^[\x21-\x7e]{1,300}$/.test(destination)) throw new Fault('bad_request', '`destination` is not visible ASCII')
  const datagrams = parseTargets(fields['udp'], 'udp', isLiteral)
  const streams = parseTargets(fields['tcp'], 'tcp', isLiteral)
  const restore = !hasNoDevice && streams.some(isIPv6) ? (await import('./plain-regexps.ts')).plainRegexps() : undefined
  try {
    // First, for its answer comes from outside, and the others are looked for meanwhile.
    const answer = askGateway(gateway, destination, MAX_TIMEOUT_MS)
    const tcp = Promise.all(
      streams.map((target) => (hasNoDevice && isIPv6(target) ? NO_DEVICE : connectTo(target, timeoutMs))),
    )
    const udp = Promise.all(datagrams.map((target) => (hasNoDevice ? NO_DEVICE : findRoute(target))))
    return { tcp: await tcp, udp: await udp, gateway: await answer }
  } finally {
    restore?.()
  }
}

/** Whether the kernel has no other network device for this process. False where it does not say. @see man 5 proc_pid_net */
function hasLoopbackAlone(): boolean {
  let text: string
  try {
    text = fs.readFileSync('/proc/self/net/dev', 'latin1')
  } catch {
    return false
  }
  const [, heading, ...devices] = text.trimEnd().split('\n')
  return (
    heading?.includes('|bytes') === true && devices.length === 1 && devices[0]?.trimStart().startsWith('lo:') === true
  )
}

function connectTo(target: Target, timeoutMs: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = net.connect(target)
    const end = (outcome: string): void => {
      socket.destroy()
      resolve(outcome)
    }
    socket.setTimeout(timeoutMs, () => end('timeout'))
    socket.once('connect', () => end('connected'))
    socket.on('error', (error) => end(codeOf(error)))
  })
}

async function findRoute({ host, port }: Target): Promise<string> {
  // Not at the top: a start should not load it.
  const { createSocket } = await import('node:dgram')
  return new Promise((resolve) => {
    const socket = createSocket(net.isIPv6(host) ? 'udp6' : 'udp4')
    const end = (outcome: string): void => {
      socket.close()
      resolve(outcome)
    }
    socket.once('error', (error) => end(codeOf(error)))
    try {
      socket.connect(port, host, (error?: Error) => end(error === undefined ? 'connected' : codeOf(error)))
    } catch (error) {
      end(codeOf(error))
    }
  })
}

function askGateway(target: Target, destination: string, timeoutMs: number): Promise<object> {
  return new Promise((resolve) => {
    const socket = net.connect(target)
    let head = ''
    const end = (answer: object): void => {
      socket.destroy()
      resolve(answer)
    }
    socket.setTimeout(timeoutMs, () => end({ error: 'timeout' }))
    socket.on('error', (error) => end({ error: codeOf(error) }))
    socket.once('close', () => end({ error: 'closed' }))
    socket.once('connect', () => socket.write(`CONNECT ${destination} HTTP/1.1\r\nHost: ${destination}\r\n\r\n`))
    socket.on('data', (chunk: Buffer) => {
      head += chunk.toString('latin1')
      const status = /^HTTP\/1\.[01] (\d{3})[ \r]/.exec(head)?.[1]
      if (head.includes('\r\n\r\n')) {
        const reason = /^x-deny-reason: ?([a-z_]{1,40})\r$/im.exec(head)?.[1]
        end(
          status === undefined
            ? { error: 'no_http' }
            : { status: Number(status), ...(reason !== undefined && { reason }) },
        )
      } else if (head.length > MAX_HEAD_BYTES) end({ error: 'no_http' })
    })
  })
}

type IsLiteral = (host: string) => boolean

function isAddress(host: string): boolean {
  return net.isIP(host) !== 0
}

/** Enough where an IPv6 address is not connected to. */
function looksLikeAddress(host: string): boolean {
  return host.includes(':') ? /^[0-9a-f:.]{2,45}$/i.test(host) : net.isIPv4(host)
}

function isIPv6({ host }: Target): boolean {
  return host.includes(':')
}

function parseTargets(value: unknown, name: string, isLiteral: IsLiteral): readonly Target[] {
  if (!Array.isArray(value) || value.length > MAX_TARGETS)
    throw new Fault('bad_request', `\`${name}\` is not a list of at most ${MAX_TARGETS}`)
  return value.map((each) => parseTarget(each, isLiteral))
}

function parseTarget(value: unknown, isLiteral: IsLiteral): Target {
  const fields = parseObject(value, 'target')
  const host = text(fields, 'host') ?? ''
  const port = integer(fields, 'port', 1, 65_535)
  if (!isLiteral(host) || port === undefined) throw new Fault('bad_request', 'a target is an address and a port')
  return { host, port }
}

function codeOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException
  return typeof code === 'string' && /^[A-Z0-9_]{1,40}$/.test(code) ? code : 'failed'
}
