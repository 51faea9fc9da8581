/** The container of a group: the image of deploy/azure as its files are laid out there, waiting for its settings as an instance of a pool does. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { seccompFilter } from '../../../provider/backends/seccomp-filter.ts'
import { workerFile } from '../../../provider/worker-file.ts'
import { type Guest, startGuest } from '../elsewhere/guest.ts'

const ENTRY = path.join(import.meta.dirname, '../../../deploy/azure/sandbox/entry')

export interface Machine extends Pick<Guest, 'address' | 'exec' | 'stop' | 'exitCode'> {
  readonly hasEnded: () => boolean
}

export interface MachineOptions {
  readonly container: string
  readonly settings: string
  /** In the place of the image's own worker. */
  readonly worker?: string
  /** Between the start of the container and its claim. */
  readonly beforeSettings?: (guest: Guest) => Promise<void>
}

/** Resolves when its settings are laid down; a worker answers a moment later. */
export async function startMachine({ container, settings, worker, beforeSettings }: MachineOptions): Promise<Machine> {
  const filter = writeFilter()
  const { gateway } = JSON.parse(settings) as { readonly gateway: { readonly url: string } }
  const { hostname, port } = new URL(gateway.url)
  const guest = await startGuest({
    command: ['/bin/sh', '/opt/sallyport/entry'],
    mounts: [
      [ENTRY, 'entry'],
      [process.execPath, 'node'],
      [worker ?? (await workerFile()), 'worker.cjs'],
      [filter, 'filter.bpf'],
    ].map(([hostPath = '', name = '']) => ({ hostPath, path: `/opt/sallyport/${name}` })),
    gateway: { host: hostname, port: Number(port) },
  })
  let hasEnded = false
  void guest.ended.then(() => {
    hasEnded = true
    fs.rmSync(path.dirname(filter), { recursive: true, force: true })
  })
  await beforeSettings?.(guest)
  const place = `/mnt/configmap/${container}`
  // Half of it first: a file is not there at one stroke.
  const half = settings.slice(0, settings.length / 2)
  await guest.exec(['sh', '-c', `mkdir -p ${place} && cat > ${place}/settings`], { input: half })
  await guest.exec(['sh', '-c', `cat > ${place}/settings`], { input: settings })
  return { address: guest.address, exec: guest.exec, stop: guest.stop, exitCode: guest.exitCode, hasEnded: () => hasEnded } // prettier-ignore
}

function writeFilter(): string {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'spa-')), 'filter.bpf')
  fs.writeFileSync(file, seccompFilter(os.arch() === 'arm64' ? 'arm64' : 'x64'))
  return file
}
