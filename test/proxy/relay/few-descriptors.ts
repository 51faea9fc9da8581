/** Run with few descriptors: fills them with clients, frees them, and says whether a listener still serves. Not a test file itself. */
import net from 'node:net'
import { listenTcp } from '../../../proxy/relay/listen.ts'
import type { Side } from '../../../proxy/relay/side.ts'

const sides: Side[] = []
const listener = await listenTcp({
  host: '127.0.0.1',
  port: 0,
  onSide: (side) => {
    sides.push(side)
    side.write(Buffer.from('hello'))
  },
  onFault: () => undefined,
})

function connect(): net.Socket {
  return net.connect({ port: listener.port, host: '127.0.0.1' }).on('error', () => undefined)
}

const clients = Array.from({ length: 70 }, connect)
// Until nothing more comes in for a while.
for (let before = -1; before !== sides.length;) {
  before = sides.length
  await new Promise((resolve) => setTimeout(resolve, 100))
}
const exhausted = sides.length < clients.length
const cpuBefore = process.cpuUsage()
await new Promise((resolve) => setTimeout(resolve, 200))
const { user, system } = process.cpuUsage(cpuBefore)
for (const socket of clients) socket.destroy()
for (const side of sides) side.destroy()
await new Promise((resolve) => setTimeout(resolve, 50))
const served = await new Promise<boolean>((resolve) => {
  const socket = connect()
  socket.once('data', () => resolve(true))
  socket.once('close', () => resolve(false))
})
process.stdout.write(JSON.stringify({ exhausted, served, spun: user + system > 100_000 }))
process.exit(0)
