/** What is written on a container group so that another process finds it, and what is read from one. The name alone says whose it is; tags say the rest. */
import { isSandboxId } from '../../runtime-folder.ts'
import type { SandboxInfo } from '../../sandbox.ts'
import { type Labels, infoOf, LABEL, labelsOf } from '../container-labels.ts'
import type { Group } from './arm.ts'

/** Lower-case letters, digits and hyphens, 63 at most. @throws TypeError for what is no id */
export function groupNameOf(prefix: string, id: string): string {
  if (!isSandboxId(id)) throw new TypeError('that is not the id of a sandbox')
  return `${prefix}-${id.replace('_', '-')}`
}

/** Undefined for a group that is not one of ours. */
export function idOfGroup(prefix: string, name: string): string | undefined {
  // Azure keeps names as they were written, and compares them without case.
  const text = name.toLowerCase()
  if (!text.startsWith(`${prefix}-sbx-`)) return undefined
  const id = text.slice(prefix.length + 1).replace('-', '_')
  return isSandboxId(id) ? id : undefined
}

/** The tags of a sandbox. */
export function tagsOf(request: {
  readonly id: string
  readonly rootDir: string
  readonly labels: Labels
}): Record<string, string> {
  const all = labelsOf({ ...request, backend: 'aci-standby-pool', part: 'sandbox', runtimeFolder: '', channel: '' })
  // A tag that says nothing.
  return Object.fromEntries(
    Object.entries(all).filter(([name]) => name !== LABEL.runtimeFolder && name !== LABEL.channel),
  )
}

/** Undefined for a group that is not one of ours. */
export function infoOfGroup(prefix: string, { name, tags, properties }: Group): SandboxInfo | undefined {
  const id = idOfGroup(prefix, name)
  if (id === undefined) return undefined
  const { provisioningState, isCreatedFromStandbyPool, ipAddress, instanceView } = properties
  const said = {
    name,
    state: instanceView?.state ?? provisioningState,
    address: ipAddress?.ip,
    'created-from-standby-pool':
      typeof isCreatedFromStandbyPool === 'boolean' ? String(isCreatedFromStandbyPool) : undefined,
  }
  // One whose tags are not written yet has just been made, for all that can be known.
  const info = infoOf({ ...tags, [LABEL.sandbox]: id }, Date.now()) ?? { id, createdAtMs: Date.now(), labels: {} }
  return { ...info, platform: Object.fromEntries(Object.entries(said).filter((entry): entry is [string, string] => entry[1] !== undefined)) } // prettier-ignore
}
