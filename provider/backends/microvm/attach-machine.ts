/** A machine that another process made: reached by its sockets, ended by its record. */
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import net from 'node:net'
import { rm } from 'node:fs/promises'
import type { StartedSandbox } from '../../backend.ts'
import { INSIDE } from '../inside.ts'
import type { SocketRelay } from '../loopback-relay.ts'
import { gatewaySocketIn, startFolderRelay } from './folder-relay.ts'
import { PORT, TAP, VSOCK } from './guest-protocol.ts'
import { removeMachine } from './remove-machine.ts'
import { startTapRelay } from './tap-network.ts'
import { isWhole, type MachineRecord } from './vm-record.ts'
import { connectVsock } from './vsock.ts'

const LOOK_MS = 500

/** Undefined when it has ended; what is left of it is then removed. */
export async function attachMachine(record: MachineRecord, runtimeFolder: string): Promise<StartedSandbox | undefined> {
  if (!(await isWhole(record))) {
    await removeMachine(record)
    return undefined
  }
  let relay: Promise<SocketRelay | undefined> | undefined
  let stopped = false
  return {
    rootDir: INSIDE.workspace,
    ...(record.network !== undefined && { gateway: { host: TAP.host, port: PORT.gateway } }),
    connect: async () => {
      // Whoever only wants to end it needs no way out for it.
      relay ??= takeOverRelay(record, path.join(runtimeFolder, 'egress', 'gateway.sock'))
      await relay
      return connectVsock(path.join(record.folder, VSOCK), PORT.worker)
    },
    ended: untilEnded(record, () => stopped),
    stop: async () => {
      stopped = true
      await (await relay?.catch(() => undefined))?.close()
      await removeMachine(record)
    },
  }
}

/** The process that made the machine carries its way out; this one does when that is gone. Undefined while it lives. */
async function takeOverRelay(
  { folder, network }: MachineRecord,
  gatewaySocket: string,
): Promise<SocketRelay | undefined> {
  const target = (): { readonly path: string } => ({ path: gatewaySocket })
  // The port can't be had while another process listens.
  if (network !== undefined) return startTapRelay(network, target).catch(() => undefined)
  const place = gatewaySocketIn(folder)
  if (await answers(place)) return undefined
  await rm(place, { force: true })
  return startFolderRelay(folder, target)
}

function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect({ path: socketPath })
    const end = (isThere: boolean): void => {
      socket.destroy()
      resolve(isThere)
    }
    socket.once('connect', () => end(true)).once('error', () => end(false))
  })
}

/** Does not keep the process alive. */
async function untilEnded(record: MachineRecord, isStopped: () => boolean): Promise<void> {
  while (!isStopped() && (await isWhole(record))) await delay(LOOK_MS, undefined, { ref: false })
}
