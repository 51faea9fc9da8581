/** A real DNS server on loopback, UDP and TCP on one port, that answers as a test says. */
import dgram from 'node:dgram'
import net from 'node:net'
import packet, { type Answer } from 'dns-packet'

export interface DnsQuery {
  readonly name: string
  readonly type: string
  readonly transport: 'udp' | 'tcp'
  readonly sourcePort: number
}

/** `undefined` stays silent. */
export type DnsReply =
  | {
      readonly answers?: readonly Answer[]
      /** 0 NOERROR, 2 SERVFAIL, 3 NXDOMAIN, 5 REFUSED */
      readonly rcode?: number
      readonly truncated?: boolean
      /** What is really sent: several datagrams, forged ones, rubbish. */
      readonly send?: (right: Buffer) => readonly Buffer[]
    }
  | undefined

export interface DnsServer {
  /** `address:port` */
  readonly text: string
  readonly queries: DnsQuery[]
  readonly close: () => Promise<void>
}

export async function startDnsServer(
  answer: (query: DnsQuery) => DnsReply | Promise<DnsReply>,
  host = '127.0.0.1',
): Promise<DnsServer> {
  const queries: DnsQuery[] = []
  const sockets = new Set<net.Socket>()
  const tcp = net.createServer((socket) => {
    sockets.add(socket)
    let bytes = Buffer.alloc(0)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', (chunk) => {
      bytes = Buffer.concat([bytes, chunk])
      while (bytes.length >= 2 && bytes.length >= 2 + bytes.readUInt16BE(0)) {
        const message = bytes.subarray(2, 2 + bytes.readUInt16BE(0))
        bytes = bytes.subarray(2 + message.length)
        void reply(message, 'tcp', socket.remotePort ?? 0, (out) => {
          const length = Buffer.alloc(2)
          length.writeUInt16BE(out.length)
          socket.write(Buffer.concat([length, out]))
        })
      }
    })
  })
  await new Promise<void>((resolve) => tcp.listen(0, host, resolve))
  const { port } = tcp.address() as net.AddressInfo
  const udp = dgram.createSocket(net.isIPv6(host) ? 'udp6' : 'udp4')
  udp.on(
    'message',
    (message, from) => void reply(message, 'udp', from.port, (out) => udp.send(out, from.port, from.address)),
  )
  await new Promise<void>((resolve, reject) => {
    udp.once('error', reject)
    udp.bind(port, host, resolve)
  })

  return {
    text: net.isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`,
    queries,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise<void>((resolve) => udp.close(resolve))
      await new Promise((resolve) => tcp.close(resolve))
    },
  }

  async function reply(
    message: Buffer,
    transport: 'udp' | 'tcp',
    sourcePort: number,
    send: (bytes: Buffer) => void,
  ): Promise<void> {
    const { id, questions } = packet.decode(message)
    const question = questions![0]!
    const query: DnsQuery = { name: question.name, type: question.type, transport, sourcePort }
    queries.push(query)
    const given = await answer(query)
    if (given === undefined) return
    const flags =
      packet.RECURSION_AVAILABLE | (given.truncated === true ? packet.TRUNCATED_RESPONSE : 0) | (given.rcode ?? 0)
    const right = packet.encode({
      type: 'response',
      id: id!,
      flags,
      questions: questions!,
      answers: [...(given.answers ?? [])],
    })
    for (const bytes of given.send?.(right) ?? [right]) send(bytes)
  }
}

export function a(name: string, data: string, ttl = 60): Answer {
  return { type: 'A', name, data, ttl }
}

export function aaaa(name: string, data: string, ttl = 60): Answer {
  return { type: 'AAAA', name, data, ttl }
}

export function cname(name: string, data: string, ttl = 60): Answer {
  return { type: 'CNAME', name, data, ttl }
}
