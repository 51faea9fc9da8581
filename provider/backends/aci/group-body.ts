/** What Azure is told when a sandbox is made: a claim of a pooled instance with nothing in it that a claim may not have, or a whole group. */
import type { AciColdGroup, AciPool, ResolvedAciOptions } from './aci-options.ts'
import { idOf, poolIdOf } from './arm.ts'

/** The entry of the image waits for this file: `/mnt/configmap/<container>/settings`. */
const SETTINGS_KEY = 'settings'
/** Name of the one container of a group that is made cold. */
export const COLD_CONTAINER = 'sandbox'

/** What is particular to one sandbox. */
export interface GroupRequest {
  /** For the worker, JSON of one line. */
  readonly settings: string
  readonly tags: Readonly<Record<string, string>>
  readonly memoryLimitMb?: number | undefined
}

/** A body for `ContainerGroups_CreateOrUpdate`, and what in it is confidential. */
export interface GroupBody {
  readonly body: object
  readonly secrets: readonly string[]
}

/** Makes it. */
export function groupBody(options: ResolvedAciOptions, request: GroupRequest): GroupBody {
  const { location, pool, group, tagging } = options
  const properties =
    pool === undefined ? coldGroup(options, group as AciColdGroup, request) : claim(options, pool, request)
  return {
    body: { location, properties, ...(tagging === 'claim' && { tags: request.tags }) },
    secrets: [
      ...options.folders.flatMap(({ share }) => share?.storageAccountKey ?? []),
      ...(group?.registry !== undefined && 'password' in group.registry ? [group.registry.password] : []),
    ],
  }
}

/**
 * Azure refuses a claim with any other property: subnet, image and resources are the pool's and the profile's. The name of the container must be the
 * profile's, or its configMap reaches nobody.
 */
function claim(options: ResolvedAciOptions, pool: AciPool, { settings }: GroupRequest): object {
  const { failContainerGroupCreateOnReuseFailure } = pool
  return {
    containerGroupProfile: {
      id: idOf(pool.profile, 'Microsoft.ContainerInstance/containerGroupProfiles', options),
      revision: pool.revision ?? 1,
    },
    standbyPoolProfile: {
      id: poolIdOf(options),
      ...(failContainerGroupCreateOnReuseFailure !== undefined && { failContainerGroupCreateOnReuseFailure }),
    },
    containers: [{ name: pool.container, properties: { configMap: configMap(settings) } }],
  }
}

function coldGroup(
  { folders, workerPort }: ResolvedAciOptions,
  group: AciColdGroup,
  { settings, memoryLimitMb }: GroupRequest,
): object {
  const { image, subnetId, cpu = 1, memoryInGb = 1.5, registry } = group
  const ports = [{ protocol: 'TCP', port: workerPort }]
  const shares = folders.flatMap(({ path, writable, share }, index) => (share === undefined ? [] : [{ name: `folder-${index}`, path, writable, share }])) // prettier-ignore
  return {
    osType: 'Linux',
    sku: 'Standard',
    // One that ended is not to come back with settings that were used.
    restartPolicy: 'Never',
    ...(subnetId !== undefined && { subnetIds: [{ id: subnetId }] }),
    ipAddress: { type: subnetId === undefined ? 'Public' : 'Private', ports },
    ...(registry !== undefined && { imageRegistryCredentials: [registry] }),
    ...(shares.length > 0 && {
      volumes: shares.map(({ name, writable, share: { shareName, storageAccountName, storageAccountKey } }) => ({
        name,
        azureFile: { shareName, storageAccountName, storageAccountKey, readOnly: !writable },
      })),
    }),
    containers: [
      {
        name: COLD_CONTAINER,
        properties: {
          image,
          ports,
          resources: { requests: { cpu, memoryInGB: memoryLimitMb === undefined ? memoryInGb : inGb(memoryLimitMb) } },
          configMap: configMap(settings),
          ...(shares.length > 0 && { volumeMounts: shares.map(({ name, path, writable }) => ({ name, mountPath: path, readOnly: !writable })) }), // prettier-ignore
        },
      },
    ],
  }
}

function configMap(settings: string): object {
  return { keyValuePairs: { [SETTINGS_KEY]: settings } }
}

/** Azure counts in tenths. */
function inGb(megabytes: number): number {
  return Math.max(0.1, Math.ceil((megabytes / 1024) * 10) / 10)
}
