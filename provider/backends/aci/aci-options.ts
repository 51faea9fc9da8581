/** What the backend of Azure's container groups may be told, and what holds when it is not. */
import type { InsideAddress } from '../../backend.ts'
import net from 'node:net'
import type { ContainerSandboxLayout } from '../container-layout.ts'
import { type AciFolder, resolveAciLayout } from './aci-layout.ts'
import type { AzureCredential } from './arm-token.ts'

/** The pool that sandboxes are claimed from, as deploy/azure makes it. */
export interface AciPool {
  /** Name in the resource group, or a whole resource id. */
  readonly name: string
  /** The container group profile that its instances are made from: name or id. */
  readonly profile: string
  /** Of the profile; 1 by default. */
  readonly revision?: number
  /** Name of the profile's one container: its files are in `/mnt/configmap/<container>`. */
  readonly container: string
  /**
   * What becomes of a claim while the pool is empty: false (default): Azure makes a cold group of the profile, in a minute rather than a second; true: there
   * is no sandbox, fault `capacity_exhausted`. Sent as it is; absent when it is not given.
   */
  readonly failContainerGroupCreateOnReuseFailure?: boolean
}

/** A group that is made for each sandbox, without a pool. */
export interface AciColdGroup {
  /** The sandbox image of deploy/azure. */
  readonly image: string
  /** Delegated to Microsoft.ContainerInstance/containerGroups. Without it the group has a public address, which needs `unsafePublicAddress`. */
  readonly subnetId?: string
  /** 1 by default. */
  readonly cpu?: number
  /** 1.5 by default. */
  readonly memoryInGb?: number
  /** Who may pull the image; nobody needs to by default. */
  readonly registry?: { readonly server: string } & ({ readonly username: string; readonly password: string } | { readonly identity: string }) // prettier-ignore
}

/** How sandboxes are made of container groups. One of `pool` and `group`. */
export interface AciStandbyPoolOptions {
  readonly subscriptionId: string
  readonly resourceGroup: string
  /** Region, such as `westeurope`. */
  readonly location: string
  readonly pool?: AciPool
  readonly group?: AciColdGroup
  /** Gives a token for Azure Resource Manager; asked for each request, so it keeps one itself. By default the identity that `credential` names. */
  readonly getArmToken?: () => Promise<string>
  /** Whose token is asked for by the package `@azure/identity`; `{ kind: 'default' }` by default. */
  readonly credential?: AzureCredential
  /** Folders; `/workspace` of the image by default. A pool takes those of the image alone. */
  readonly layout?: ContainerSandboxLayout
  /** Of the groups' names: `sallyport` by default. 1 to 32 of `a-z0-9-`. */
  readonly namePrefix?: string
  /** When labels are written as tags: with the claim (default), or by a request of its own after it, should the platform take no tags at a claim. */
  readonly tagging?: 'claim' | 'update'
  /** What no sandbox may reach: addresses that answer whoever is not stopped. Two public resolvers by default. */
  readonly directTargets?: readonly InsideAddress[]
  /** Takes groups with a public address, whose worker anybody may knock at; false by default. */
  readonly unsafePublicAddress?: boolean
  /** Where the worker listens, and the profile's `ipAddress` has it; 2024 by default. */
  readonly workerPort?: number
  /** `https://management.azure.com` by default; another for a sovereign cloud, with `armScope`. */
  readonly armEndpoint?: string
  readonly armScope?: string
  /** Of container groups; `2024-05-01-preview` by default. */
  readonly apiVersion?: string
  /** Of standby pools; `2025-03-01` by default. */
  readonly poolApiVersion?: string
  /** Milliseconds from the claim to a group that runs; 300 000 by default, which is for a cold one. */
  readonly createTimeoutMs?: number
  /** Milliseconds from then to a worker that answers; 60 000 by default. */
  readonly workerTimeoutMs?: number
  /** Milliseconds until a group must be gone; 180 000 by default. */
  readonly removeTimeoutMs?: number
  /** Milliseconds between two looks at what takes its time, where Azure does not say; 1 000 by default. */
  readonly pollMs?: number
}

/** With every default in its place. */
export interface ResolvedAciOptions extends Omit<AciStandbyPoolOptions, 'layout'> {
  readonly credential: AzureCredential
  readonly folders: readonly AciFolder[]
  readonly namePrefix: string
  readonly tagging: 'claim' | 'update'
  readonly directTargets: readonly InsideAddress[]
  readonly unsafePublicAddress: boolean
  readonly workerPort: number
  readonly armEndpoint: string
  readonly armScope: string
  readonly apiVersion: string
  readonly poolApiVersion: string
  readonly createTimeoutMs: number
  readonly workerTimeoutMs: number
  readonly removeTimeoutMs: number
  readonly pollMs: number
}

/** They answer everybody, everywhere: that they do not answer a sandbox is the work of its network. */
const PUBLIC_TARGETS: readonly InsideAddress[] = [
  { host: '1.1.1.1', port: 443 },
  { host: '8.8.8.8', port: 443 },
]
const PLAIN = /^[A-Za-z0-9][A-Za-z0-9._()-]{0,89}$/
const ID = /^\/subscriptions\/[^/?#\s]+\/resourceGroups\/[^/?#\s]+\/providers(\/[A-Za-z0-9._()-]+)+$/i
const MAX_MS = 3_600_000

/** @throws TypeError for a caller's mistake; SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED` for folders that can't be had */
export function resolveAciOptions(given: AciStandbyPoolOptions): ResolvedAciOptions {
  const { pool, group } = given
  const armEndpoint = given.armEndpoint ?? 'https://management.azure.com'
  const options: ResolvedAciOptions = {
    ...given,
    credential: given.credential ?? { kind: 'default' },
    folders: resolveAciLayout(given.layout, pool !== undefined),
    namePrefix: given.namePrefix ?? 'sallyport',
    tagging: given.tagging ?? 'claim',
    directTargets: given.directTargets ?? PUBLIC_TARGETS,
    unsafePublicAddress: given.unsafePublicAddress ?? false,
    workerPort: given.workerPort ?? 2024,
    armEndpoint,
    armScope: given.armScope ?? 'https://management.azure.com/.default',
    apiVersion: given.apiVersion ?? '2024-05-01-preview',
    poolApiVersion: given.poolApiVersion ?? '2025-03-01',
    createTimeoutMs: given.createTimeoutMs ?? 300_000,
    workerTimeoutMs: given.workerTimeoutMs ?? 60_000,
    removeTimeoutMs: given.removeTimeoutMs ?? 180_000,
    pollMs: given.pollMs ?? 1_000,
  }
  // Whoever writes no TypeScript may say anything.
  for (const name of ['subscriptionId', 'resourceGroup'] as const) mustBe(PLAIN.test(options[name]), name, 'a plain name, without slashes') // prettier-ignore
  mustBe(/^[A-Za-z0-9 ]{1,60}$/.test(options.location), 'location', 'a region, such as `westeurope`')
  mustBe(/^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/.test(options.namePrefix), 'namePrefix', '1 to 32 of `a-z0-9-`')
  mustBe(['claim', 'update'].includes(options.tagging), 'tagging', '`claim` or `update`')
  mustBe((pool === undefined) !== (group === undefined), 'pool', 'given, or `group` in its place, and not both')
  mustBe(options.directTargets.length > 0 && options.directTargets.every(isTarget), 'directTargets', 'one address with a port or more: literals') // prettier-ignore
  for (const name of ['createTimeoutMs', 'workerTimeoutMs', 'removeTimeoutMs', 'pollMs'] as const) mustBe(Number.isSafeInteger(options[name]) && options[name] >= 1 && options[name] <= MAX_MS, name, 'a whole number of milliseconds, an hour at most') // prettier-ignore
  mustBe(Number.isInteger(options.workerPort) && options.workerPort >= 1 && options.workerPort <= 65_535, 'workerPort', 'a port') // prettier-ignore
  if (pool !== undefined) checkPool(pool)
  if (group !== undefined) checkGroup(group, options.unsafePublicAddress)
  return options
}

function checkPool({ name, profile, revision = 1, container }: AciPool): void {
  mustBe(PLAIN.test(name) || ID.test(name), 'pool.name', 'a name or a resource id')
  mustBe(PLAIN.test(profile) || ID.test(profile), 'pool.profile', 'a name or a resource id')
  mustBe(Number.isSafeInteger(revision) && revision >= 1, 'pool.revision', 'a whole number, 1 or more')
  mustBe(isContainerName(container), 'pool.container', 'the name of the profile’s container: `a-z0-9-`')
}

function checkGroup({ image, subnetId, cpu = 1, memoryInGb = 1.5 }: AciColdGroup, unsafePublicAddress: boolean): void {
  mustBe(typeof image === 'string' && /^[^\s]{1,300}$/.test(image), 'group.image', 'the name of an image')
  mustBe(subnetId === undefined || ID.test(subnetId), 'group.subnetId', 'a resource id')
  mustBe(cpu > 0 && cpu <= 64 && memoryInGb > 0 && memoryInGb <= 512, 'group.cpu', 'above 0, as `group.memoryInGb` is')
  mustBe(subnetId !== undefined || unsafePublicAddress, 'group.subnetId', 'given: without it the group has a public address, at which anybody may knock; `unsafePublicAddress: true` puts up with that') // prettier-ignore
}

function isContainerName(name: unknown): boolean {
  return typeof name === 'string' && /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(name)
}

function isTarget({ host, port }: InsideAddress): boolean {
  return net.isIP(host) !== 0 && Number.isInteger(port) && port >= 1 && port <= 65_535
}

function mustBe(isSo: boolean, name: string, what: string): void {
  if (!isSo) throw new TypeError(`\`${name}\` must be ${what}`)
}
