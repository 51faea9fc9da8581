/** One file with the policies of all tenants: a map from each name to its policy. */
import type { FileLayers } from './file-layers.ts'
import type { PolicyPlace } from './policy-folder.ts'
import { fileStamp, MAX_ALL_BYTES, readPolicyFile, trustedPlace, unusable } from './read-policy-file.ts'
import { Settling } from './settling.ts'
import { SallyportError, type Steps } from '../../../policies/index.ts'

const MAX_TENANTS = 10_000
const MAX_TENANT_NAME = 100

/** Opens one; reads nothing yet. */
export function policyFile(path: string, layers: FileLayers): PolicyPlace {
  const settling = new Settling()
  return {
    *look(isFirst) {
      const { path: real } = trustedPlace(path)
      const stamp = fileStamp(real)
      if (!settling.isDue(path, stamp, isFirst)) return
      try {
        const read = yield* readPolicyFile(path, { maxBytes: MAX_ALL_BYTES, isFirst })
        if (read.stamp !== stamp) return
        yield* takeAll(entriesOf(read.value))
        layers.mend(path)
      } catch (error) {
        // At the start there is nothing that could stay in force.
        if (isFirst || !(error instanceof SallyportError)) throw error
        layers.fail({ path, message: error.message })
      }
      settling.take(path, stamp)
    },
    close: () => undefined,
  }

  function* takeAll(policies: ReadonlyMap<string, unknown>): Steps<void> {
    for (const tenant of layers.tenants()) if (!policies.has(tenant)) layers.remove(tenant)
    for (const [tenant, policy] of policies) {
      yield* layers.put(tenant, path, policy)
      yield
    }
  }

  function entriesOf(value: unknown): ReadonlyMap<string, unknown> {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw unusable(path, 'is no map from the names of tenants to their policies')
    const entries = new Map(Object.entries(value))
    if (entries.size > MAX_TENANTS) throw unusable(path, `holds the policies of more than ${MAX_TENANTS} tenants`)
    for (const name of entries.keys())
      if (name === '' || name.length > MAX_TENANT_NAME)
        throw unusable(path, `holds a name that is empty or longer than ${MAX_TENANT_NAME} characters`)
    return entries
  }
}
