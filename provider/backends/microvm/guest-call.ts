/** The guest's call to its host, at the port that exists until the guest knows what it is: it waits for orders, and says when its worker answers. */
import { randomBytes } from 'node:crypto'
import { rm } from 'node:fs/promises'
import net from 'node:net'
import { openToAll } from '../control-socket.ts'
import { GUEST_PROTOCOL, type GuestOrder, ordersFor, PORT, VSOCK } from './guest-protocol.ts'
import { MicrovmError, printable } from './microvm-error.ts'

/** Waits for one guest. */
export interface GuestCall {
  /** The guest is up and waits for orders. @throws MicrovmError `image_unusable` for one that speaks another version */
  readonly waiting: Promise<void>
  /** Gives the orders; resolves when the worker answers. @throws MicrovmError `image_unusable` when the guest says something else */
  readonly give: (order: GuestOrder) => Promise<void>
  /** Idempotent; what the guest says from now on is heard by nobody. */
  readonly close: () => void
}

const SEED_BYTES = 64
/** Whoever is in the guest before the worker is there is our own, but it costs nothing to be careful. */
const MAX_LINE_BYTES = 4_096
const MAX_CALLS = 4

/** Listens in the machine's folder. A machine of a snapshot calls again, since its first call belongs to the one that was kept. */
export async function expectCall(folder: string): Promise<GuestCall> {
  const place = `${folder}/${VSOCK}_${PORT.boot}`
  const waiting = Promise.withResolvers<undefined>()
  const ready = Promise.withResolvers<undefined>()
  for (const each of [waiting, ready]) each.promise.catch(() => undefined)
  let caller: net.Socket | undefined
  let order: GuestOrder | undefined

  const give = (): void => {
    // The seed is drawn at the last moment, for this very call.
    if (order !== undefined) caller?.write(ordersFor(order, { nowMs: Date.now(), seed: randomBytes(SEED_BYTES) }))
  }
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined)
    eachLine(socket, (line) => {
      if (line === `waiting ${GUEST_PROTOCOL}`) {
        caller?.destroy()
        caller = socket
        waiting.resolve(undefined)
        give()
      } else if (line === 'ready' && socket === caller && order !== undefined) ready.resolve(undefined)
      else {
        const fault = new MicrovmError(
          'image_unusable',
          `the guest says \`${printable(line)}\` where \`waiting ${GUEST_PROTOCOL}\` or \`ready\` was expected: its root file system is of another version; build it again`,
        )
        waiting.reject(fault)
        ready.reject(fault)
        socket.destroy()
      }
    })
    socket.once('close', () => {
      if (caller === socket) caller = undefined
    })
  })
  server.maxConnections = MAX_CALLS
  await rm(place, { force: true })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ path: place }, () => {
      server.off('error', reject).on('error', () => undefined)
      resolve()
    })
  })
  // The machine's program may be another user; the folder keeps others out.
  await openToAll(place)
  return {
    waiting: waiting.promise,
    give: (given) => {
      order = given
      give()
      return ready.promise
    },
    close: () => {
      // Also takes the file away.
      server.close()
      caller?.destroy()
    },
  }
}

function eachLine(socket: net.Socket, onLine: (line: string) => void): void {
  let text = ''
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1')
    const lines = text.split('\n')
    text = lines.pop() ?? ''
    for (const line of lines) onLine(line)
    if (text.length > MAX_LINE_BYTES) onLine(text.slice(0, MAX_LINE_BYTES))
  })
}
