/** What is outside of the gateways: an origin that echoes or resets, and a resolver that answers or does not. */
import { once } from 'node:events'
import net from 'node:net'
import { startDnsServer } from '../proxy/egress/dns-server.ts'

/** Both, and what is wrong with them at the moment. */
export interface Outside {
  readonly port: number
  /** For `network.resolvers`. */
  readonly resolver: string
  resets: boolean
  flaps: boolean
  close(): Promise<void>
}

/** Starts both on loopback. While names flap, one in two queries has no answer and the others fail. */
export async function startOutside(): Promise<Outside> {
  const origin = net.createServer((socket) => {
    socket.on('error', () => socket.destroy())
    if (outside.resets) socket.resetAndDestroy()
    else socket.pipe(socket)
  })
  origin.listen(0, '127.0.0.1')
  await once(origin, 'listening')
  const { port } = origin.address() as net.AddressInfo
  const dns = await startDnsServer(({ name, type }) => {
    if (outside.flaps) return name.length % 2 === 0 ? undefined : { rcode: 2 }
    return { answers: type === 'A' ? [{ type: 'A', name, ttl: 1, data: '127.0.0.1' }] : [] }
  })
  const outside: Outside = {
    port,
    resolver: dns.text,
    resets: false,
    flaps: false,
    close: async () => {
      origin.close()
      await dns.close()
    },
  }
  return outside
}
