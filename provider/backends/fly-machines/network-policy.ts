/** The network policy of the app: which ports the platform lets its machines use. It knows no addresses; those are held by the rules inside. */
import { z } from 'zod'
import { PlatformError } from '../platform/platform-error.ts'

const policySchema = z.object({
  id: z.string().max(200).optional(),
  name: z.string().max(200),
  selector: z.object({
    all: z.boolean().optional(),
    machines: z.array(z.object({ id: z.string().max(200) })).optional(),
    metadata: z.record(z.string(), z.string()).optional(),
  }),
  rules: z.array(
    z.object({
      action: z.string().max(100),
      direction: z.string().max(100),
      ports: z.array(z.object({ protocol: z.string().max(100), port: z.number() })).optional(),
    }),
  ),
})

/** Of the platform. */
export const policiesSchema = z.array(policySchema).max(1_000)

/** One of them. */
export type NetworkPolicy = z.infer<typeof policySchema>

/** What a machine may do. */
export interface AllowedPorts {
  /** TCP, to whatever address: the gateway's. */
  readonly egress: number
  /** TCP, of the worker. */
  readonly ingress: number
}

/** Metadata of machines that are held to one gateway's port: an app may have several gateways. */
export function policyMetadata(egressPort: number): Readonly<Record<string, string>> {
  return { [PORT_KEY]: String(egressPort) }
}

const PORT_KEY = 'sallyport-egress'

/** What the app's policies come to. */
export type PolicyVerdict =
  | { readonly kind: 'fits' }
  /** Nothing holds machines to anything. */
  | { readonly kind: 'absent' }
  | { readonly kind: 'wider' | 'narrower'; readonly what: string }

/** The policy that does it. */
export function sandboxPolicy({ egress, ingress }: AllowedPorts): NetworkPolicy {
  const allow = (direction: string, port: number) => ({
    action: 'allow',
    direction,
    ports: [{ protocol: 'tcp', port }],
  })
  return {
    name: `sallyport-${egress}`,
    selector: { metadata: policyMetadata(egress) },
    rules: [allow('egress', egress), allow('ingress', ingress)],
  }
}

/**
 * Judges all policies of the app together. Once one allows something in a direction, the platform denies the rest of that direction; so one that surely holds
 * for our machines closes it, while any that may hold for them may open it further. One for machines by their ids can't mean a machine that does not exist yet.
 */
export function judgePolicies(policies: readonly NetworkPolicy[], wanted: AllowedPorts): PolicyVerdict {
  const own = policyMetadata(wanted.egress)
  const ours = policies.filter(({ selector }) => mayHold(selector, own))
  const of = (direction: string, which: readonly NetworkPolicy[]) =>
    which.flatMap(({ rules }) => rules.filter((rule) => rule.direction === direction))
  const closes = ours.filter(({ selector }) => surelyHolds(selector, own))
  const isClosed = of('egress', closes).some(({ action }) => action === 'allow')
  if (!isClosed) return { kind: 'absent' }
  const allowed: string[] = []
  for (const { action, ports } of of('egress', ours)) {
    if (action !== 'allow') return { kind: 'wider', what: `a rule \`${action.slice(0, 20)}\`, which is not known` }
    // It may mean every port.
    if (ports === undefined || ports.length === 0) return { kind: 'wider', what: 'egress to any port' }
    allowed.push(...ports.map(({ protocol, port }) => `${protocol}/${port}`))
  }
  const gateway = `tcp/${wanted.egress}`
  const further = allowed.filter((each) => each !== gateway)
  if (further.length > 0) return { kind: 'wider', what: `egress to ${[...new Set(further)].slice(0, 10).join(', ')}` }
  const ingress = of('ingress', ours).filter(({ action }) => action === 'allow')
  const isReachable = ingress.length === 0 || ingress.some(({ ports = [] }) => ports.length === 0 || ports.some(({ protocol, port }) => protocol === 'tcp' && port === wanted.ingress)) // prettier-ignore
  return isReachable ? { kind: 'fits' } : { kind: 'narrower', what: `ingress to tcp/${wanted.ingress} is not allowed` }
}

/** Unless it says otherwise: what other metadata a machine has, the platform may decide. */
function mayHold(
  { all, machines, metadata }: NetworkPolicy['selector'],
  own: Readonly<Record<string, string>>,
): boolean {
  if (all === true) return true
  if (machines !== undefined && machines.length > 0) return false
  return !Object.entries(metadata ?? {}).some(([name, value]) => name in own && own[name] !== value)
}

/** The criteria of a selector must all be met. */
function surelyHolds(
  { all, machines = [], metadata = {} }: NetworkPolicy['selector'],
  own: Readonly<Record<string, string>>,
): boolean {
  // prettier-ignore
  const entries = Object.entries(metadata)
  if (machines.length > 0 || (all !== true && entries.length === 0)) return false
  return entries.every(([name, value]) => own[name] === value)
}

/** How the app is read and changed. */
export interface PolicyAccess {
  readonly policies: () => Promise<readonly NetworkPolicy[]>
  readonly createPolicy: (policy: NetworkPolicy) => Promise<void>
}

/**
 * Makes sure of it, at every start anew. A machine that is made afterwards is held to it.
 * @throws PlatformError `network_unsafe` for an app whose machines may do more, or where the policy is absent and not to be made
 */
export async function ensurePolicy(
  access: PolicyAccess,
  wanted: AllowedPorts,
  { app, mayCreate }: { readonly app: string; readonly mayCreate: boolean },
): Promise<void> {
  let verdict = judgePolicies(await access.policies(), wanted)
  if (verdict.kind === 'absent' && mayCreate) {
    await access.createPolicy(sandboxPolicy(wanted))
    verdict = judgePolicies(await access.policies(), wanted)
  }
  if (verdict.kind === 'fits') return
  const said =
    verdict.kind === 'absent'
      ? `no network policy closes the machines of the app \`${app}\``
      : `the network policies of the app \`${app}\` do not fit: ${verdict.what}`
  throw new PlatformError('network_unsafe', `${said}; sandboxes may connect to tcp/${wanted.egress} alone, and tcp/${wanted.ingress} of theirs must be reachable (deploy/fly/README.md)`) // prettier-ignore
}
