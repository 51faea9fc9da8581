/** An address on loopback that answers no SYN: a listener in another process that never accepts, with its queue filled up. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import net from 'node:net'

export interface Blackhole {
  readonly port: number
  readonly close: () => Promise<void>
}

/** Waits for ever with the event loop stopped, so that nothing is accepted. */
const LISTENER = `
  const server = require('node:net').createServer()
  server.listen({ host: process.argv[1], port: Number(process.argv[2]), backlog: 1 }, () => {
    require('node:fs').writeSync(1, server.address().port + '\\n')
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
  })`

export async function startBlackhole(host: string, port = 0): Promise<Blackhole> {
  const child = spawn(process.execPath, ['-e', LISTENER, host, String(port)], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  const bound = Number(line.toString())
  // The kernel completes one handshake more than the backlog says; whatever comes after that is dropped.
  const fillers: net.Socket[] = []
  for (let place = 0; place < 2; place++) {
    const filler = net.connect({ host, port: bound })
    filler.on('error', () => undefined)
    fillers.push(filler)
    await once(filler, 'connect')
  }
  return {
    port: bound,
    close: async () => {
      for (const filler of fillers) filler.destroy()
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}
