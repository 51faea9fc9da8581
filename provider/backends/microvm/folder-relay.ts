/** The way out of a machine without a network: what its guest connects to comes out at a socket in its folder, and is carried to the gateway from there. */
import path from 'node:path'
import { openToAll } from '../control-socket.ts'
import { startSocketRelay, type SocketRelay } from '../loopback-relay.ts'
import { PORT, VSOCK } from './guest-protocol.ts'

/** The socket, by the machine's folder. */
export function gatewaySocketIn(folder: string): string {
  return path.join(folder, `${VSOCK}_${PORT.gateway}`)
}

/** Listens there; `target` is asked for each connection, and closes it by saying nothing. The machine's program may be another user. */
export async function startFolderRelay(
  folder: string,
  target: () => { readonly path: string } | undefined,
): Promise<SocketRelay> {
  const relay = await startSocketRelay(gatewaySocketIn(folder), target)
  try {
    await openToAll(gatewaySocketIn(folder))
    return relay
  } catch (error) {
    await relay.close()
    throw error
  }
}
