/** The order for one machine: a function of what was asked for. Nothing in it is worth stealing once the worker has answered. */
import type { InsideAddress } from '../../backend.ts'
import type { WorkerSettings } from '../../worker/settings.ts'
import { INSIDE, INSIDE_PROXY, INSIDE_USER } from '../inside.ts'
import type { ResolvedFlyOptions } from './fly-options.ts'
import { policyMetadata } from './network-policy.ts'

/** Port of the worker in the private network. */
export const WORKER_PORT = 2024
/** What runs first in the image, as root. */
export const GUEST_INIT = '/opt/sallyport/init'
/** Where it leaves what it has to say. */
export const GUEST_SAID = '/run/sallyport/said'
const SETTINGS_FILE = '/etc/sallyport/settings.json'
/** Names of metadata: which machines are sandboxes, which one this is, and its labels. */
const META = { kind: 'sallyport', id: 'sallyport-id', label: 'sallyport-label.' } as const

/** Of the platform. */
export interface MachineRequest {
  readonly name: string
  readonly region?: string
  readonly skip_service_registration: true
  readonly config: Readonly<Record<string, unknown>>
}

/** What a machine is made for. */
export interface MachineOrder {
  readonly id: string
  readonly labels: Readonly<Record<string, string>>
  /** Good until the worker has answered and got another. */
  readonly firstBearer: string
  /** As the machine reaches it. */
  readonly gateway: InsideAddress & { readonly url: string; readonly ca: string | undefined }
  readonly memoryLimitMb: number
  readonly maxProcesses: number
  readonly timeoutMs: number | undefined
}

/** Metadata of every sandbox. */
export const ANY_SANDBOX: Readonly<Record<string, string>> = { [META.kind]: 'sandbox' }

/** Metadata of one. */
export function metadataOf(id: string): Readonly<Record<string, string>> {
  return { ...ANY_SANDBOX, [META.id]: id }
}

/** Id and labels of a machine; undefined where it is no sandbox. */
export function identityIn(
  metadata: Readonly<Record<string, string>> = {},
): { readonly id: string; readonly labels: Readonly<Record<string, string>> } | undefined {
  const id = metadata[META.id]
  if (metadata[META.kind] !== 'sandbox' || id === undefined) return undefined
  const labels = Object.entries(metadata).filter(([name]) => name.startsWith(META.label))
  return { id, labels: Object.fromEntries(labels.map(([name, value]) => [name.slice(META.label.length), value])) }
}

/** Name of the machine: the same however often it is asked for. */
export function machineName(id: string): string {
  return `sallyport-${id.replace(/^sbx_/, '')}`
}

/** The order. */
export function machineRequest(
  { image, region, cpuKind, cpus }: Pick<ResolvedFlyOptions, 'image' | 'region' | 'cpuKind' | 'cpus'>,
  order: MachineOrder,
): MachineRequest {
  const { id, gateway } = order
  return {
    name: machineName(id),
    ...(region !== undefined && { region }),
    skip_service_registration: true,
    config: {
      image,
      init: { exec: [GUEST_INIT] },
      env: {
        SALLYPORT_GATEWAY_ADDRESS: gateway.host,
        SALLYPORT_GATEWAY_PORT: String(gateway.port),
        SALLYPORT_WORKER_PORT: String(WORKER_PORT),
        SALLYPORT_MAX_PROCESSES: String(order.maxProcesses),
      },
      files: [
        {
          guest_path: SETTINGS_FILE,
          raw_value: Buffer.from(`${JSON.stringify(settingsFor(order))}\n`).toString('base64'),
          mode: 0o400,
        },
      ],
      guest: { cpu_kind: cpuKind, cpus, memory_mb: order.memoryLimitMb },
      metadata: {
        ...metadataOf(id),
        ...policyMetadata(gateway.port),
        ...Object.fromEntries(Object.entries(order.labels).map(([name, value]) => [META.label + name, value])),
      },
      // When the worker ends, at its time too, the machine ends, and the platform removes it: no host is needed for that.
      restart: { policy: 'no' },
      auto_destroy: true,
      stop_config: { signal: 'SIGTERM', timeout: '5s' },
      dns: { skip_registration: true },
    },
  }
}

/** Neither the token for the gateway nor the environment of commands is among them: those go to the worker itself. */
function settingsFor({ firstBearer, gateway, timeoutMs }: MachineOrder): WorkerSettings {
  return {
    token: firstBearer,
    listen: { host: '::', port: WORKER_PORT },
    roots: [
      { path: INSIDE.workspace, writable: true },
      { path: '/tmp', writable: true },
    ],
    gateway: { ...INSIDE_PROXY, url: gateway.url, ...(gateway.ca !== undefined && { ca: gateway.ca }) },
    ...(timeoutMs !== undefined && { timeToLiveMs: timeoutMs }),
  }
}

/** What commands have, below what the caller gives them. */
export const CHILD_ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: INSIDE.workspace,
  USER: INSIDE_USER.name,
  LOGNAME: INSIDE_USER.name,
  LANG: 'C.UTF-8',
  TMPDIR: '/tmp',
}
