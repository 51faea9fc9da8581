/** The cable between this host and one guest, and what the host lets through it. */
import { execFile } from 'node:child_process'
import { randomInt } from 'node:crypto'
import fs from 'node:fs'
import { promisify } from 'node:util'

export type Family = 4 | 6

/** What a guest may reach. */
export type GuestGateway = ReachablePort | Redirected

/** One port, and nothing else. */
interface ReachablePort {
  /** A literal of this host's; undefined: that port of any address, as where a platform knows ports alone. */
  readonly host?: string
  readonly port: number
}

/** Every TCP connection is taken by a port of this host, which learns where it was to go; nothing else gets through but questions to one name server. */
interface Redirected {
  readonly redirect: { readonly tcpPort: number; readonly nameServer: string; readonly udpPort: number }
}

const run = promisify(execFile)
const CABLES = 4_096
let prepared: Promise<void> | undefined
/** Ranges that lead nowhere: of benchmarks, and one of those that private networks of platforms have. */
const PREFIX = { guests4: '198.18', hosts4: '198.19', guests6: 'fdaa:53:616c:1', hosts6: 'fdaa:53:616c:2' } as const

/** An address for services of this host, besides those it has. A test that was killed leaves it behind, on loopback. */
export async function openHostAddress(
  family: Family,
): Promise<{ readonly address: string; readonly close: () => Promise<void> }> {
  for (;;) {
    const number = randomInt(1, 65_000)
    const address =
      family === 4 ? `${PREFIX.hosts4}.${number >> 8}.${number & 255}` : `${PREFIX.hosts6}::${number.toString(16)}`
    const change = (what: 'add' | 'delete') =>
      run('ip', ['address', what, `${address}/${family === 4 ? 32 : 128}`, 'dev', 'lo'])
    try {
      await change('add')
      return { address, close: () => change('delete').then(() => undefined, () => undefined) } // prettier-ignore
    } catch (error) {
      if (!/exists|already assigned/i.test(String((error as { stderr?: string }).stderr))) throw error
    }
  }
}

/** Lays it to the network namespace of process `pid`. The rules are there before the first packet can be. */
export async function connectNetwork(
  pid: number,
  gateway: GuestGateway,
  family: Family,
): Promise<{ readonly address: string; readonly close: () => Promise<void> }> {
  await (prepared ??= closeRanges().then(sweep))
  const number = await newCable(pid)
  const device = `spg${number}`
  const table = `sallyport_guest_${number}_${process.pid}`
  const close = async (): Promise<void> => {
    await run('ip', ['link', 'delete', device]).catch(() => undefined)
    await run('nft', ['delete', 'table', 'inet', table]).catch(() => undefined)
  }
  const block = family === 4 ? `${PREFIX.guests4}.${number >> 6}.` : `${PREFIX.guests6}:${number.toString(16)}::`
  const first = family === 4 ? (number & 63) << 2 : 0
  const [host, guest] = [`${block}${first + 1}`, `${block}${first + 2}`]
  const length = family === 4 ? 30 : 80
  const ip = async (...commands: readonly string[]): Promise<void> => {
    for (const command of commands) await run('ip', command.split(' '))
  }
  const inside = async (...commands: readonly string[]): Promise<void> => {
    for (const command of commands) await run('nsenter', ['--target', String(pid), '--net', '--', 'ip', ...command.split(' ')]) // prettier-ignore
  }
  try {
    await run('nft', [rules(table, device, gateway)])
    const noDetection = family === 6 ? ' nodad' : ''
    await ip(`address add ${host}/${length} dev ${device}${noDetection}`, `link set ${device} up`)
    await inside('link set lo up', `address add ${guest}/${length} dev eth0${noDetection}`, 'link set eth0 up', `route add default via ${host}`) // prettier-ignore
    return { address: guest, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** A name that the kernel gives but once stands for the addresses too. */
async function newCable(pid: number): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const number = randomInt(CABLES)
    try {
      await run('ip', ['link', 'add', `spg${number}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', String(pid)])
      return number
    } catch (error) {
      if (!/exists/i.test(String((error as { stderr?: string }).stderr))) throw error
    }
  }
  throw new Error('there is no cable left for a guest')
}

/** Neighbour discovery is what an address of the sixth family needs to be reached at all. */
function rules(table: string, device: string, gateway: GuestGateway): string {
  const { nat, accepted } =
    'redirect' in gateway ? redirected(device, gateway) : { nat: '', accepted: reachable(gateway) }
  return `table inet ${table} {
  ${nat}
  chain input {
    type filter hook input priority filter - 5; policy accept;
    iifname != "${device}" accept
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    ${accepted}
    drop
  }
  chain forward {
    type filter hook forward priority filter - 5; policy accept;
    iifname "${device}" drop
    oifname "${device}" drop
  }
}
`
}

function reachable({ host, port }: ReachablePort): string {
  const to = host === undefined ? '' : host.includes(':') ? `ip6 daddr ${host} ` : `ip daddr ${host} `
  return `${to}tcp dport ${port} accept`
}

function redirected(device: string, { redirect: { tcpPort, nameServer, udpPort } }: Redirected) {
  return {
    nat: `chain prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "${device}" meta l4proto tcp redirect to :${tcpPort}
    iifname "${device}" ip daddr ${nameServer} udp dport 53 redirect to :${udpPort}
  }`,
    accepted: `ct status dnat tcp dport ${tcpPort} accept
    ct status dnat udp dport ${udpPort} accept`,
  }
}

/** Tables of processes that were killed. */
async function sweep(): Promise<void> {
  const { stdout } = await run('nft', ['list', 'tables'])
  for (const [, name = '', pid = ''] of stdout.matchAll(/table inet (sallyport_guest_\d+_(\d+))/g))
    if (!fs.existsSync(`/proc/${pid}`)) await run('nft', ['delete', 'table', 'inet', name]).catch(() => undefined)
}

/**
 * Where a guest was, nobody is: not even whoever is at the end of this host's way out, since tests look for those that are gone. These two stay: the ranges
 * lead nowhere anyhow.
 */
async function closeRanges(): Promise<void> {
  for (const range of [`${PREFIX.guests4}.0.0/16`, `${PREFIX.guests6}::/64`])
    await run('ip', ['route', 'replace', 'unreachable', range, 'metric', '4000'])
}
