/**
 * Answers on addresses of the network namespace that it is started in: what a sandbox must not reach. A program of its own.
 *
 * First argument: JSON of {@link Services}. Prints `ready`, and ends when its standard input does.
 */
import dgram from 'node:dgram'
import net from 'node:net'

export interface Services {
  /** Address and port. */
  readonly tcp?: readonly (readonly [string, number])[]
  readonly udp?: readonly (readonly [string, number])[]
  /** Paths, or a NUL and the name of an abstract one. */
  readonly unix?: readonly string[]
}

const { tcp = [], udp = [], unix = [] } = JSON.parse(process.argv[2] ?? '{}') as Services

const greet = (socket: net.Socket): void => {
  socket.on('error', () => undefined)
  socket.once('data', () => socket.end('reached a service\n'))
}
await Promise.all([
  ...tcp.map(([host, port]) => new Promise<void>((resolve) => net.createServer(greet).listen(port, host, resolve))),
  ...unix.map((path) => new Promise<void>((resolve) => net.createServer(greet).listen(path, resolve))),
  ...udp.map(([host, port]) => {
    const socket = dgram.createSocket(host.includes(':') ? 'udp6' : 'udp4')
    socket.on('message', (_message, peer) => socket.send('reached a service', peer.port, peer.address))
    return new Promise<void>((resolve) => socket.bind(port, host, resolve))
  }),
])
console.log('ready')
process.stdin.resume().on('end', () => process.exit(0))
