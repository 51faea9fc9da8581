/** A machine of the stand-in platform: the image's own init and worker in a guest of this machine, or an image that has something wrong with it. */
import fs from 'node:fs'
import path from 'node:path'
import { seccompFilter } from '../../../provider/backends/seccomp-filter.ts'
import { filterArchitecture } from '../../../provider/backends/syscalls.ts'
import { workerFile } from '../../../provider/worker-file.ts'
import { type Guest, startGuest } from '../elsewhere/guest.ts'
import type { GuestGateway } from '../elsewhere/guest-network.ts'

/** Names of images that the platform has. */
export const IMAGE = 'registry.fly.io/sandboxes:1'
export const BROKEN_IMAGES = {
  withoutInit: 'registry.fly.io/sandboxes:no-init',
  withoutRules: 'registry.fly.io/sandboxes:no-nft',
  withoutWorker: 'registry.fly.io/sandboxes:no-worker',
  otherVersion: 'registry.fly.io/sandboxes:old',
  /** It can't be booted at all. */
  failing: 'registry.fly.io/sandboxes:failing',
  silent: 'registry.fly.io/sandboxes:silent',
  stranger: 'registry.fly.io/sandboxes:stranger',
} as const

const INIT = path.join(import.meta.dirname, '../../../deploy/fly/sandbox/init')
const OWN = '/opt/sallyport'

/** Configuration of a machine, as far as it matters here. */
export interface GuestConfig {
  readonly image: string
  readonly init: { readonly exec: readonly [string, ...string[]] }
  readonly env: Readonly<Record<string, string>>
  readonly files: readonly { readonly guest_path: string; readonly raw_value: string; readonly mode: number }[]
  readonly guest: { readonly memory_mb: number }
}

/** What lies in the image, made once. */
export function makeImage(folder: string): void {
  const architecture = filterArchitecture(process.arch)
  if (architecture === undefined) throw new Error('there is no filter for this processor')
  fs.writeFileSync(path.join(folder, 'filter.bpf'), seccompFilter(architecture))
  const server = (body: string): string => `const settings = JSON.parse(require('node:fs').readFileSync(0, 'utf8').split('\\n')[0]); require('node:http').createServer((request, response) => { response.setHeader('content-type', 'application/json'); response.end(${body}) }).listen(settings.listen.port, settings.listen.host)\n` // prettier-ignore
  fs.writeFileSync(path.join(folder, 'old.cjs'), server('JSON.stringify({ status: "ok", protocol: 0, pid: 1, node: "v1", rootDir: "/workspace", running: 0, uptimeMs: 1 })')) // prettier-ignore
  fs.writeFileSync(path.join(folder, 'stranger.cjs'), server('"<html>hello</html>"'))
  fs.writeFileSync(path.join(folder, 'silent.cjs'), 'setInterval(() => undefined, 60000)\n')
}

/** Boots it. */
export async function bootMachine(
  folder: string,
  config: GuestConfig,
  gateway: GuestGateway,
  onOutput: (text: string) => void,
): Promise<Guest> {
  const { image } = config
  const worker =
    image === BROKEN_IMAGES.otherVersion
      ? path.join(folder, 'old.cjs')
      : image === BROKEN_IMAGES.silent
        ? path.join(folder, 'silent.cjs')
        : image === BROKEN_IMAGES.stranger
          ? path.join(folder, 'stranger.cjs')
          : await workerFile()
  return startGuest({
    command: config.init.exec,
    files: config.files.map(({ guest_path, raw_value, mode }) => ({ path: guest_path, content: Buffer.from(raw_value, 'base64'), mode })), // prettier-ignore
    mounts: [
      ...(image === BROKEN_IMAGES.withoutInit ? [] : [{ hostPath: INIT, path: `${OWN}/init` }]),
      ...(image === BROKEN_IMAGES.withoutWorker ? [] : [{ hostPath: worker, path: `${OWN}/worker.cjs` }]),
      ...(image === BROKEN_IMAGES.withoutRules ? [{ hostPath: '/dev/null', path: fs.realpathSync('/usr/sbin/nft') }] : []), // prettier-ignore
      { hostPath: path.join(folder, 'filter.bpf'), path: `${OWN}/filter.bpf` },
      { hostPath: process.execPath, path: `${OWN}/node` },
    ],
    env: config.env,
    gateway,
    family: 6,
    // As root of a machine of its own has it: the image builds a wall inside.
    capabilities: ['sys_admin', 'sys_resource'],
    memoryLimitMb: config.guest.memory_mb,
    onOutput,
  })
}
