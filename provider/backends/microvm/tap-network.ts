/**
 * A network of one machine's own: a namespace with a single interface, at whose other end is the guest, and no way from there to anywhere. What the guest may
 * reach of it is one port of one address, behind which this process carries to the gateway.
 */
import { execFile, spawn } from 'node:child_process'
import { access } from 'node:fs/promises'
import net from 'node:net'
import { promisify } from 'node:util'
import { startHandedRelay, type SocketRelay } from '../loopback-relay.ts'
import { PORT, TAP } from './guest-protocol.ts'
import { MicrovmError, printable } from './microvm-error.ts'

const run = promisify(execFile)
const PATIENCE_MS = 15_000

/** Name of a machine's namespace. */
export function networkOf(id: string): string {
  return `sallyport-${id.replace(/^[a-z]+_/, '')}`
}

/**
 * Default drop, both ways and through: `guest` is the interface, and nothing is tracked, so that no state can be filled.
 * IPv6 is off in the namespace, and what is left of it falls under the same drop.
 */
export function firewallRules(): string {
  return `table inet sallyport {
  chain input {
    type filter hook input priority filter; policy drop;
    iifname "${TAP.device}" ip saddr ${TAP.guest} ip daddr ${TAP.host} tcp dport ${PORT.gateway} accept
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
  }
  chain output {
    type filter hook output priority filter; policy drop;
    oifname "${TAP.device}" ip saddr ${TAP.host} ip daddr ${TAP.guest} tcp sport ${PORT.gateway} accept
  }
}
`
}

/**
 * Makes it: the rules first, so that the interface never exists without them.
 *
 * @throws MicrovmError `network_failed`; what was made by then is for {@link removeNetwork}
 */
export async function makeNetwork(name: string, uid: number | undefined): Promise<void> {
  await step('make a network namespace', 'ip', ['netns', 'add', name])
  await step('turn IPv6 off in it', 'nsenter', [...inside(name), 'sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6']) // prettier-ignore
  await closeNetwork(name)
  const owner = uid === undefined ? [] : ['user', String(uid), 'group', String(uid)]
  await step('make its interface', 'ip', ['-n', name, 'tuntap', 'add', TAP.device, 'mode', 'tap', ...owner])
  await addressNetwork(name)
}

/** Loads the rules into a namespace. @throws MicrovmError `network_failed` */
export async function closeNetwork(name: string): Promise<void> {
  await step('load its rules', 'nsenter', [...inside(name), 'nft', firewallRules()])
}

/** Gives the interface its address. @throws MicrovmError `network_failed` */
export async function addressNetwork(name: string): Promise<void> {
  await step('give its interface an address', 'ip', ['-n', name, 'address', 'add', `${TAP.host}/${TAP.prefix}`, 'dev', TAP.device]) // prettier-ignore
  await step('turn its interface on', 'ip', ['-n', name, 'link', 'set', TAP.device, 'up'])
}

/** Nothing there is fine. */
export async function removeNetwork(name: string): Promise<void> {
  const isThere = await access(`/run/netns/${name}`).then(
    () => true,
    () => false,
  )
  if (isThere) await step('remove a network namespace', 'ip', ['netns', 'delete', name])
}

/** Listens inside and hands the listener out: what accepts is this process, outside. */
const LISTEN =
  'const [, host, port] = process.argv; const server = require("node:net").createServer({ allowHalfOpen: true, pauseOnConnect: true });' +
  'server.listen(Number(port), host, () => process.send("listening", server, () => process.exit(0)))'

/**
 * Carries what comes to the guest's one port to `target`, which is asked for each connection.
 *
 * @throws MicrovmError `network_failed`, also when another process has the port
 */
export async function startTapRelay(name: string, target: () => net.NetConnectOpts | undefined): Promise<SocketRelay> {
  const child = spawn(
    'nsenter',
    [...inside(name), process.execPath, '-e', LISTEN, TAP.host, String(PORT.gateway)],
    { env: {}, stdio: ['ignore', 'ignore', 'pipe', 'ipc'], timeout: PATIENCE_MS },
  ) // prettier-ignore
  let complaint = ''
  child.stderr?.on('data', (chunk: Buffer) => (complaint = (complaint + chunk.toString('latin1')).slice(-4_096)))
  const server = await new Promise<net.Server>((resolve, reject) => {
    child.once('message', (_message, handle) => {
      if (handle instanceof net.Server) resolve(handle)
    })
    child.once('error', reject)
    child.once('exit', () =>
      // The message may be under way.
      setImmediate(() => reject(failed('listen in it', complaint))),
    )
  })
  return startHandedRelay(server, target)
}

function inside(name: string): string[] {
  return [`--net=/run/netns/${name}`, '--']
}

async function step(action: string, program: string, args: readonly string[]): Promise<void> {
  try {
    await run(program, [...args], { env: { PATH: process.env['PATH'] ?? '' }, timeout: PATIENCE_MS })
  } catch (error) {
    const { code, stderr } = error as { readonly code?: unknown; readonly stderr?: string }
    throw failed(action, code === 'ENOENT' ? `there is no program \`${program}\` (Debian: iproute2, nftables, util-linux)` : (stderr ?? ''), error) // prettier-ignore
  }
}

function failed(action: string, said: string, cause?: unknown): MicrovmError {
  return new MicrovmError('network_failed', `can't ${action} for the microVM: ${printable(said) || 'no reason was given'}`, cause) // prettier-ignore
}
