/**
 * The way out of a build: a gateway of ours that lets out to the hosts this machine's npm is configured for, and to nothing else. The engine's own network
 * has no route, so a build that fetched from anywhere else would fail here.
 */
import { spawn } from 'node:child_process'
import dns from 'node:dns/promises'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseConfig } from '../../proxy/config/parse.ts'
import { createGateway } from '../../proxy/gateway.ts'
import { readMachineSets } from '../../proxy/policy/machine-sets.ts'

const PORT = 3128

/** `inNetwork` is the command line that enters the network in which the proxy is to be at `url`. */
export async function openNpmWayOut(
  inNetwork: readonly string[],
): Promise<{ readonly url: string; readonly close: () => Promise<void> }> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spn-'))
  const socket = path.join(folder, 'proxy.sock')
  const machineSets = readMachineSets()
  const hosts = machineSets.sets.npm.map((entry) => entry.replace(/:[\d*-]+$/, ''))
  // Wherever a mirror is: its names are the operator's own.
  const found = await Promise.all(hosts.map((host) => dns.lookup(host, { all: true })))
  const parsed = parseConfig(
    {
      state: path.join(folder, 'state'),
      log: { level: 'silent' },
      listen: {
        proxy: 'off',
        admin: 'off',
        bound: [
          { address: `unix:${socket}`, sandbox: 'image-build', egress: { kind: 'static', allowedHosts: ['@npm'] } },
        ],
      },
      policy: { ceiling: { kind: 'allow-all' } },
      network: { allowPrivate: found.flat().map(({ address, family }) => `${address}/${family === 4 ? 32 : 128}`) },
      limits: { perSandbox: { newPerSecond: 1_000 } },
    },
    { environment: {}, folder },
  )
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
  const gateway = await createGateway({ config: parsed.config, machineSets })
  await gateway.listen()
  const [program = '', ...args] = inNetwork
  const relay = spawn(program, [
    ...args,
    'socat',
    `TCP-LISTEN:${PORT},bind=127.0.0.1,fork,reuseaddr`,
    `UNIX-CONNECT:${socket}`,
  ])
  return {
    url: `http://127.0.0.1:${PORT}`,
    close: async () => {
      const ended = new Promise((resolve) => relay.once('exit', resolve))
      relay.kill()
      await ended
      await gateway.close()
      fs.rmSync(folder, { recursive: true, force: true })
    },
  }
}
