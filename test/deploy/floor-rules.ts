/**
 * NetworkPolicies as a conforming network plugin enforces them, as rules of nftables in the namespace that stands for the node. What the policies do not
 * open is closed here as there: the manifests decide, not this file.
 * @see https://kubernetes.io/docs/concepts/services-networking/network-policies/
 */
import type { Manifest } from './manifests.ts'

/** A pod, or what stands for one. */
export interface Pod {
  readonly namespace: string
  readonly labels: Readonly<Record<string, string>>
  readonly ip4: string
  readonly ip6: string
}

interface Selector {
  readonly matchLabels?: Readonly<Record<string, string>>
}

interface Peer {
  readonly podSelector?: Selector
  readonly namespaceSelector?: Selector
  readonly ipBlock?: { readonly cidr: string; readonly except?: readonly string[] }
}

interface Rule {
  readonly from?: readonly Peer[]
  readonly to?: readonly Peer[]
  readonly ports?: readonly { readonly protocol?: string; readonly port?: number }[]
}

interface Policy {
  readonly podSelector: Selector
  readonly policyTypes: readonly ('Ingress' | 'Egress')[]
  readonly ingress?: readonly Rule[]
  readonly egress?: readonly Rule[]
}

/** A table for `nft -f`. `cluster` are the Namespaces and NetworkPolicies of all manifests that were applied. */
export function floorRules(cluster: readonly Manifest[], pods: readonly Pod[]): string {
  const policies = cluster.filter(({ kind }) => kind === 'NetworkPolicy')
  const labelsOf = (namespace: string): Readonly<Record<string, string>> => ({
    ...cluster.find(({ kind, metadata }) => kind === 'Namespace' && metadata.name === namespace)?.metadata.labels,
    'kubernetes.io/metadata.name': namespace,
  })

  /** What a peer stands for, as the part of a rule that matches addresses at `end`. */
  const addresses = (peer: Peer, end: 'saddr' | 'daddr', own: string): readonly string[] => {
    if (peer.ipBlock !== undefined) {
      const { cidr, except = [] } = peer.ipBlock
      const family = cidr.includes(':') ? 'ip6' : 'ip'
      return [`${family} ${end} ${cidr}${except.length > 0 ? ` ${family} ${end} != { ${except.join(', ')} }` : ''}`]
    }
    return pods
      .filter((pod) =>
        peer.namespaceSelector === undefined
          ? pod.namespace === own
          : isSelected(peer.namespaceSelector, labelsOf(pod.namespace)),
      )
      .filter(({ labels }) => isSelected(peer.podSelector ?? {}, labels))
      .flatMap(({ ip4, ip6 }) => [`ip ${end} ${ip4}`, `ip6 ${end} ${ip6}`])
  }

  const chainOf = (pod: Pod, index: number, direction: 'Ingress' | 'Egress'): string | undefined => {
    const applied = policies
      .filter(({ metadata }) => metadata.namespace === pod.namespace)
      .map(({ spec }) => spec as Policy)
      .filter(({ podSelector, policyTypes }) => policyTypes.includes(direction) && isSelected(podSelector, pod.labels))
    if (applied.length === 0) return undefined
    const rules = applied.flatMap((policy) => (direction === 'Ingress' ? policy.ingress : policy.egress) ?? [])
    const lines = rules.flatMap((rule) => {
      const peers = direction === 'Ingress' ? rule.from : rule.to
      const wheres = peers?.flatMap((peer) =>
        addresses(peer, direction === 'Ingress' ? 'saddr' : 'daddr', pod.namespace),
      ) ?? ['']
      return wheres.flatMap((where) => (rule.ports ?? [{}]).map((port) => `    ${where} ${portText(port)} return`))
    })
    return `  chain ${direction.toLowerCase()}${index} {\n${lines.join('\n')}\n    drop\n  }`
  }

  const chains = pods.flatMap((pod, index) =>
    (['Egress', 'Ingress'] as const).flatMap((direction) => {
      const chain = chainOf(pod, index, direction)
      if (chain === undefined) return []
      const end = direction === 'Egress' ? 'saddr' : 'daddr'
      const jump = `jump ${direction.toLowerCase()}${index}`
      return [{ direction, chain, jumps: [`    ip ${end} ${pod.ip4} ${jump}`, `    ip6 ${end} ${pod.ip6} ${jump}`] }]
    }),
  )
  const jumps = (directions: readonly string[]): string =>
    chains
      .filter(({ direction }) => directions.includes(direction))
      .flatMap((one) => one.jumps)
      .join('\n')
  // Neighbours are found by ICMPv6 itself, on the link of a pod alone.
  const known =
    '    ct state established,related accept\n    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept'
  return `table inet floor {
${chains.map(({ chain }) => chain).join('\n')}
  chain forward {
    type filter hook forward priority filter; policy accept;
${known}
${jumps(['Egress', 'Ingress'])}
  }
  chain input {
    type filter hook input priority filter; policy accept;
${known}
${jumps(['Egress'])}
  }
}
`
}

function isSelected({ matchLabels = {} }: Selector, labels: Readonly<Record<string, string>>): boolean {
  return Object.entries(matchLabels).every(([name, value]) => labels[name] === value)
}

function portText({ protocol, port }: { readonly protocol?: string; readonly port?: number }): string {
  if (protocol === undefined) return ''
  const name = protocol.toLowerCase()
  return port === undefined ? `meta l4proto ${name}` : `${name} dport ${port}`
}
