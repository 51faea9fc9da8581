/** Network namespaces that stand for pods of one node, which is the `host` of a test network: one link each, addresses of a pod network, services by rules. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { promisify } from 'node:util'
import type { TestNetwork } from '../provider/network.ts'
import type { Pod } from './floor-rules.ts'

/** A pod that runs. */
export interface RunningPod extends Pod {
  /** Command line that runs what follows it inside. */
  readonly inside: readonly string[]
}

/** `plan` in order; the node forwards, and hides pods behind its own address on the way out. */
export async function startPods<Name extends string>(
  network: TestNetwork,
  plan: Readonly<Record<Name, Pick<Pod, 'namespace' | 'labels'>>>,
): Promise<{ readonly pods: Readonly<Record<Name, RunningPod>>; readonly close: () => Promise<void> }> {
  const holders: ChildProcess[] = []
  const exec = async (where: readonly string[], line: string): Promise<void> => {
    const [program, ...args] = [...where, 'sh', '-ec', line]
    await promisify(execFile)(program, args)
  }
  await exec(
    network.inHost,
    `sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
     printf 'table inet node {
       chain out {
         type nat hook postrouting priority srcnat; policy accept;
         oifname "wall0" masquerade
       }
     }' | nft -f -`,
  )
  const pods = {} as Record<Name, RunningPod>
  const names = Object.keys(plan) as Name[]
  for (const [index, name] of names.entries()) {
    const holder = spawn('unshare', ['--net', 'sh', '-c', 'echo ready; exec cat'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    holders.push(holder)
    await once(holder.stdout, 'data')
    const inside = ['nsenter', '--target', String(holder.pid), '--net', '--']
    const [ip4, ip6] = [`10.244.0.${index + 10}`, `fd42::${index + 10}`]
    await exec(
      network.inHost,
      `ip link add pod${index} type veth peer name eth0 netns ${holder.pid}
       ip link set pod${index} up
       ip address add 169.254.1.1/32 dev pod${index}
       ip address add fe80::1/64 dev pod${index} nodad
       ip route add ${ip4}/32 dev pod${index}
       ip route add ${ip6}/128 dev pod${index}`,
    )
    await exec(
      inside,
      `sysctl -qw net.ipv4.ping_group_range='0 65535'
       ip link set lo up
       ip link set eth0 up
       ip address add ${ip4}/32 dev eth0
       ip address add ${ip6}/128 dev eth0 nodad
       ip route add 169.254.1.1 dev eth0
       ip route add default via 169.254.1.1
       ip route add default via fe80::1 dev eth0`,
    )
    pods[name] = { ...plan[name], ip4, ip6, inside }
  }
  return {
    pods,
    close: async () => {
      await Promise.all(
        holders.map((holder) => {
          const ended = once(holder, 'exit')
          holder.stdin?.end()
          return ended
        }),
      )
    },
  }
}
