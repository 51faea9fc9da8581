/** Takes a group away and waits until Azure says that it is gone: a request to delete is not yet a deletion. */
import { setTimeout as delay } from 'node:timers/promises'
import { PlatformError } from '../platform/platform-error.ts'
import type { ResolvedAciOptions } from './aci-options.ts'
import type { Arm } from './arm.ts'

/** Between two looks, whatever Azure says. */
const SHORTEST_MS = 250

/** Resolves when it is gone, also when it never was. @throws PlatformError when it can't be deleted, or is not gone in time */
export async function removeGroup(
  arm: Arm,
  { removeTimeoutMs, pollMs }: ResolvedAciOptions,
  name: string,
): Promise<void> {
  const endMs = performance.now() + removeTimeoutMs
  const action = `delete the container group \`${name}\``
  const pause = async (waitMs: number | undefined): Promise<void> => {
    // `Retry-After: 0` is no leave to storm.
    const forMs = Math.max(waitMs ?? pollMs, Math.min(pollMs, SHORTEST_MS))
    if (performance.now() + forMs >= endMs)
      throw new PlatformError('operation_failed', `can not ${action}: it is not gone after ${removeTimeoutMs / 1000} s, and may still cost`) // prettier-ignore
    await delay(forMs)
  }
  const begun = await arm.deleteGroup(name, removeTimeoutMs)
  if (begun === undefined) return
  if (begun.url !== undefined) {
    for (;;) {
      const looked = await arm.lookAt(begun.url, action)
      if (looked === 'succeeded') break
      await pause(looked.waitMs)
    }
  }
  for (;;) {
    const left = await arm.getGroup(name)
    if (left === undefined) return
    if (left.group.properties.provisioningState === 'Failed')
      throw new PlatformError('operation_failed', `can not ${action}: Azure says that it failed, and the group is still there`) // prettier-ignore
    await pause(left.waitMs)
  }
}
