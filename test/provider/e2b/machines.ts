/** Machines for the contract server: envd on this very host for tests of what needs no wall, or in a guest with a network of its own. */
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { build } from 'esbuild'
import { INSIDE, INSIDE_USER } from '../../../provider/backends/inside.ts'
import { startGuest } from '../elsewhere/guest.ts'
import type { E2bMachine, E2bNetwork } from './contract-server.ts'
import type { EnvdSettings } from './envd-program.ts'
import { startRedirector } from './redirector.ts'

const PROGRAM = path.join(import.meta.dirname, 'envd-program.ts')
const PORT = 49_983

/** Commands run as whoever runs the test, in a folder of their own: of what they see, only that stands for a machine. */
export async function bootHere(): Promise<E2bMachine> {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'spe-'))
  const settings: EnvdSettings = { host: '127.0.0.1', port: 0, user: { uid: 0, gid: 0, home, name: 'user' }, becomes: false } // prettier-ignore
  const child = spawn(process.execPath, [PROGRAM], {
    env: { PATH: process.env['PATH'], ENVD_SETTINGS: JSON.stringify(settings) },
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true,
  })
  const port = await listening(child.stdout)
  return {
    envd: { host: '127.0.0.1', port },
    stop: async () => {
      const ended = child.exitCode !== null || child.signalCode !== null ? undefined : new Promise((resolve) => child.once('exit', resolve)) // prettier-ignore
      for (const pid of processesAt(home)) killIfThere(pid)
      child.kill('SIGKILL')
      await ended
      fs.rmSync(home, { recursive: true, force: true })
    },
  }
}

/** As the platform makes one: its host has every connection of it in hand. Without a proxy of its own, an address that is allowed is open on the gateway's port alone. */
export async function bootGuest(network: E2bNetwork, metadata: Readonly<Record<string, string>>): Promise<E2bMachine> {
  if (network.denyOut?.includes('0.0.0.0/0') !== true) throw new Error('a machine without a firewall is not made here')
  const gatewayPort = Number(/:(\d+)\//.exec(metadata['sallyport-gateway'] ?? '')?.[1] ?? 0)
  const settings: EnvdSettings = { host: '0.0.0.0', port: PORT, user: { ...INSIDE_USER, home: INSIDE.workspace, name: 'user' }, becomes: true } // prettier-ignore
  const names = fs.mkdtempSync(path.join(os.tmpdir(), 'spn-'))
  const mounts = Object.entries(NAME_FILES).map(([name, content]) => {
    fs.writeFileSync(path.join(names, name), content)
    return { hostPath: path.join(names, name), path: `/etc/${name}` }
  })
  const redirector = await startRedirector(network, network.egressProxy == null ? gatewayPort : undefined)
  const { promise: up, resolve } = Promise.withResolvers<undefined>()
  const clean = async (): Promise<void> => {
    await redirector.stop()
    fs.rmSync(names, { recursive: true, force: true })
  }
  try {
    const guest = await startGuest({
      command: [INSIDE.node, '/opt/envd.cjs'],
      files: [{ path: '/opt/envd.cjs', content: await envdBundle(), mode: 0o755 }],
      mounts,
      env: { ENVD_SETTINGS: JSON.stringify(settings) },
      gateway: { redirect: { tcpPort: redirector.tcpPort, nameServer: NAME_SERVER, udpPort: redirector.udpPort } },
      onOutput: (text) => {
        if (text.includes('envd listens')) resolve(undefined)
      },
    })
    await Promise.race([up, guest.ended.then(() => Promise.reject(new Error('envd ended before it listened')))])
    const stop = async (): Promise<void> => {
      await guest.stop()
      await clean()
    }
    return { envd: { host: guest.address, port: PORT }, setNetwork: redirector.set, stop }
  } catch (error) {
    await clean()
    throw error
  }
}

/** Of every template. */
const NAME_SERVER = '8.8.8.8'
const NAME_FILES = {
  'resolv.conf': `nameserver ${NAME_SERVER}\noptions timeout:1 attempts:1\n`,
  'nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n',
}

let bundle: Promise<string> | undefined

function envdBundle(): Promise<string> {
  return (bundle ??= build({ entryPoints: [PROGRAM], bundle: true, platform: 'node', format: 'cjs', write: false }).then(({ outputFiles }) => outputFiles[0]?.text ?? '')) // prettier-ignore
}

async function listening(output: NodeJS.ReadableStream): Promise<number> {
  let said = ''
  for await (const chunk of output) {
    said += String(chunk)
    const port = /envd listens on (\d+)/.exec(said)?.[1]
    if (port !== undefined) return Number(port)
  }
  throw new Error('envd ended before it listened')
}

/** Those that a command left behind. */
function processesAt(folder: string): readonly number[] {
  return fs
    .readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return fs.readlinkSync(`/proc/${pid}/cwd`).startsWith(folder)
      } catch {
        return false
      }
    })
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It ended by itself.
  }
}
