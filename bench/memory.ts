/**
 * Resident memory before, during and after idle tunnels: `node bench/memory.ts [--tunnels 4500] [--rounds 3] [--wait 60] [--core 1]`. The first round is what makes a process warm; the
 * others are compared with what it had after that. Needs Linux, bash and taskset, and two descriptors here and there for each tunnel.
 */
import { once } from 'node:events'
import fs from 'node:fs'
import net from 'node:net'
import { parseArgs } from 'node:util'
import { FOR_MANY_TUNNELS, residentBytes, runBeside, startBenchGateway, startSilentOrigin } from './bench-gateway.ts'

const HOST = '127.0.0.1'
const AT_A_TIME = 100
const { values } = parseArgs({
  options: {
    tunnels: { type: 'string', default: '4500' },
    rounds: { type: 'string', default: '3' },
    wait: { type: 'string', default: '60' },
    core: { type: 'string', default: '1' },
  },
})
await runBeside(Number(values.core), async () => {
  const tunnels = Number(values.tunnels)
  const origin = await startSilentOrigin(HOST)
  const gateway = await startBenchGateway(Number(values.core), FOR_MANY_TUNNELS)
  try {
    const token = await gateway.token({ sub: 'memory' })
    const { port } = origin.address() as net.AddressInfo
    const head = `CONNECT ${HOST}:${port} HTTP/1.1\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`
    const mib = () => (residentBytes(gateway.pid) / 1024 / 1024).toFixed(0)
    console.log(['round', 'before MiB', `with ${tunnels} tunnels`, 'closed', `${values.wait} s later`].join('\t'))
    for (let round = 1; round <= Number(values.rounds); round++) {
      const before = mib()
      const open: net.Socket[] = []
      while (open.length < tunnels)
        open.push(
          ...(await Promise.all(
            Array.from({ length: Math.min(AT_A_TIME, tunnels - open.length) }, () => openTunnel(gateway.port, head)),
          )),
        )
      const during = mib()
      await Promise.all(
        open.map(async (socket) => {
          socket.end()
          await once(socket, 'close')
        }),
      )
      const closed = mib()
      await new Promise((resolve) => setTimeout(resolve, Number(values.wait) * 1000))
      console.log([round, before, during, closed, mib()].join('\t'))
    }
  } finally {
    await gateway.stop()
    origin.close()
    fs.rmSync(gateway.folder, { recursive: true, force: true })
  }
})

async function openTunnel(port: number, head: string): Promise<net.Socket> {
  const socket = net.connect(port, HOST)
  socket.on('error', () => socket.destroy())
  socket.write(head)
  await once(socket, 'data')
  return socket.resume()
}
