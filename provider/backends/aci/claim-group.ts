/** Has Azure make a group, and waits until it runs. What became of a request without a reply is read from the group's name before it is made again. */
import { setTimeout as delay } from 'node:timers/promises'
import { PlatformError } from '../platform/platform-error.ts'
import { backOffMs, DEFAULT_PACE } from '../platform/retry-after.ts'
import type { ResolvedAciOptions } from './aci-options.ts'
import { type Arm, failed, type Group, type Operation } from './arm.ts'
import type { GroupBody } from './group-body.ts'

/** A group that runs. */
export interface RunningGroup {
  readonly group: Group
  /** A literal. */
  readonly address: string
  readonly isPublic: boolean
}

interface Claim {
  readonly name: string
  readonly body: GroupBody
  /** Written on it, so that one of somebody else's is not taken for it. */
  readonly tags: Readonly<Record<string, string>>
  readonly signal?: AbortSignal | undefined
}

/** Between two looks, whatever Azure says. */
const SHORTEST_MS = 250
/** Requests without a reply; after that it is the network's affair. */
const MAX_LOST = 4

/** @throws PlatformError; the reason of the signal */
export async function claimGroup(arm: Arm, options: ResolvedAciOptions, claim: Claim): Promise<RunningGroup> {
  const endMs = performance.now() + options.createTimeoutMs
  const { name, signal } = claim
  const action = `create the container group \`${name}\``
  let seen: Operation & { readonly group: Group | undefined } = await ask(arm, claim, endMs)
  for (;;) {
    const state = seen.group?.properties.provisioningState ?? ''
    if (state === 'Failed' || state === 'Canceled') throw failed(action, state, undefined)
    if (state === 'Succeeded' && seen.group !== undefined) return running(seen.group, action)
    // The operation first: it says why.
    if (seen.url !== undefined) {
      const looked = await arm.lookAt(seen.url, action, signal)
      if (looked !== 'succeeded') {
        await pause(looked.waitMs, seen.url)
        continue
      }
    }
    const now = await arm.getGroup(name, signal)
    if (now === undefined && seen.url !== undefined) throw failed(action, 'Succeeded, and the group is not there', undefined) // prettier-ignore
    seen = now ?? { group: undefined, url: undefined, waitMs: undefined }
    const next = seen.group?.properties.provisioningState
    if (next !== 'Succeeded' && next !== 'Failed' && next !== 'Canceled') await pause(seen.waitMs, undefined)
  }

  async function pause(waitMs: number | undefined, url: URL | undefined): Promise<void> {
    // `Retry-After: 0` is no leave to storm.
    const forMs = Math.max(waitMs ?? options.pollMs, Math.min(options.pollMs, SHORTEST_MS))
    if (performance.now() + forMs >= endMs)
      throw new PlatformError('operation_failed', `can not ${action}: it is not done after ${options.createTimeoutMs / 1000} s`) // prettier-ignore
    seen = { ...seen, url }
    await delay(forMs, undefined, signal === undefined ? {} : { signal }).catch(() => signal?.throwIfAborted())
  }
}

/** One group, whichever of the requests made it. */
async function ask(
  arm: Arm,
  { name, body, tags, signal }: Claim,
  endMs: number,
): Promise<Operation & { readonly group: Group }> {
  for (let tries = 1; ; tries++) {
    try {
      signal?.throwIfAborted()
      // To its end, whoever gives up meanwhile: a request that is torn off may yet arrive, when what it made has been looked for and not been found.
      const made = await arm.putGroup(name, body.body, body.secrets)
      signal?.throwIfAborted()
      return made
    } catch (error) {
      if (!(error instanceof PlatformError)) throw error
      const isUnknown = error.outcome === 'unknown'
      if (!isUnknown && error.fault !== 'rate_limited') throw error
      if (isUnknown) {
        const found = await arm.getGroup(name, signal)
        if (found !== undefined && isOurs(found.group, tags)) return found
        if (found !== undefined)
          throw new PlatformError('name_taken', `can not create the container group \`${name}\`: one of this name is there that is not this sandbox's`) // prettier-ignore
      }
      const waitMs = Math.max(error.retryAfterMs ?? 0, backOffMs(tries, DEFAULT_PACE))
      if ((isUnknown && tries >= MAX_LOST) || performance.now() + waitMs >= endMs) throw error
      // To create a group again under its name is to create it once.
      await delay(waitMs, undefined, signal === undefined ? {} : { signal }).catch(() => signal?.throwIfAborted())
    }
  }
}

/** One without tags may be waiting for them. */
function isOurs({ tags: found }: Group, tags: Readonly<Record<string, string>>): boolean {
  const own = Object.entries(found ?? {}).filter(([name]) => name.startsWith('sallyport.'))
  return own.every(([name, value]) => tags[name] === value)
}

function running(group: Group, action: string): RunningGroup {
  const { ipAddress, restartPolicy } = group.properties
  if (restartPolicy !== undefined && restartPolicy !== null && restartPolicy !== 'Never')
    throw new PlatformError('setup_unusable', `can not ${action}: the profile's restartPolicy is \`${restartPolicy}\`, and must be \`Never\`: what comes back would take settings that were used`) // prettier-ignore
  const address = ipAddress?.ip
  if (address === undefined) throw new PlatformError('setup_unusable', `can not ${action}: it has no address; give the profile an \`ipAddress\` with the worker's port, and the pool a subnet`) // prettier-ignore
  return { group, address, isPublic: ipAddress?.type !== 'Private' }
}
