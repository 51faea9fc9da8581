/** Policies of tenants in files that are watched: a folder with one for each, or one file with all. What can't be used changes nothing; what is gone denies. */
import { finish, SallyportError } from '../../../policies/index.ts'
import { inSlices } from '../../in-slices.ts'
import type { Clock } from '../../clock.ts'
import type { TenantLayer } from '../kept-tenants.ts'
import type { ModalCell } from '../operator-policies.ts'
import { type FileChange, type FileFault, FileLayers, type FileLayersOptions } from './file-layers.ts'
import { policyFile } from './policy-file.ts'
import { policyFolder } from './policy-folder.ts'
import { trustedPlace, unusable } from './read-policy-file.ts'
import { whyUnreadable } from '../../unreadable.ts'

/** The `tenantFiles` section of the configuration. */
export interface TenantFilesSettings {
  /** A folder, or a file. */
  readonly path: string
  /** How long the last policies are kept when it can't be read; 300 by default. */
  readonly staleSeconds?: number | undefined
}

/** What the files are opened with. */
export interface TenantFilesOptions extends FileLayersOptions {
  readonly clock: Clock
  /** Something changed, which is in force when this is called: policies, or that there are none any more. */
  readonly onChange: (changes: readonly FileChange[]) => void
}

/** How the files are. */
export interface TenantFilesStatus {
  readonly path: string
  /** Tenants that have a file. */
  readonly tenants: number
  readonly faults: readonly FileFault[]
  /** Whether they were out of reach for so long that nobody has a policy. */
  readonly isStale: boolean
}

/** Such policies. */
export interface TenantFiles {
  /** `undefined` for a tenant without a file. */
  readonly get: (tenant: string) => ModalCell | undefined
  readonly layer: (tenant: string) => TenantLayer | undefined
  readonly tenants: () => readonly string[]
  readonly status: () => TenantFilesStatus
  /** Whether the folder, or the one file, could be looked at the last time. */
  readonly isReachable: () => boolean
  /** Ends watching; idempotent. */
  readonly close: () => void
}

/** What is seen twice the same is taken: half a second, and the look at open tunnels a tenth later. */
const LOOK_EVERY_MS = 250

/**
 * Reads everything and watches it from then on. A file that can't be used is told, and is its tenant's affair alone.
 * @throws SallyportError `SALLYPORT_POLICY_INVALID` when the folder, or the one file, can't be used
 */
export function openTenantFiles(
  { path, staleSeconds = 300 }: TenantFilesSettings,
  { clock, onChange, ...options }: TenantFilesOptions,
): TenantFiles {
  const layers = new FileLayers(options)
  const { stats } = trustedPlace(path)
  const place = stats.isDirectory() ? policyFolder(path, layers, clock) : policyFile(path, layers)
  let lostMs: number | undefined
  let lost: FileFault | undefined
  try {
    finish(place.look(true))
  } catch (error) {
    place.close()
    throw faultOf(error)
  }
  layers.takeChanges()
  let isLooking = false
  let isClosed = false
  const timer = setInterval(() => void look(), LOOK_EVERY_MS).unref()

  /** One at a time: much that changed at once takes several intervals. */
  async function look(): Promise<void> {
    if (isLooking) return
    isLooking = true
    try {
      await inSlices(place.look(false))
      lostMs = lost = undefined
      layers.setStale(false)
    } catch (error) {
      lostMs ??= clock.monotonicMs()
      const isNews = lost === undefined
      lost = { path, message: `${faultOf(error).message}; the last policies are kept for ${staleSeconds} seconds` }
      if (isNews) options.onFault(lost)
      if (clock.monotonicMs() - lostMs >= staleSeconds * 1_000) layers.setStale(true)
    }
    isLooking = false
    if (isClosed) return
    const changes = layers.takeChanges()
    if (changes !== undefined) onChange(changes)
  }

  function faultOf(error: unknown): SallyportError {
    return error instanceof SallyportError ? error : unusable(path, `can't be looked at (${whyUnreadable(error)})`)
  }

  return {
    get: (tenant) => layers.get(tenant),
    layer: (tenant) => layers.layer(tenant),
    tenants: () => layers.tenants(),
    status: () => ({
      path,
      tenants: layers.tenants().length,
      faults: [...(lost ? [lost] : []), ...layers.faults()],
      isStale: layers.isStale,
    }),
    isReachable: () => lost === undefined,
    close: () => {
      isClosed = true
      clearInterval(timer)
      place.close()
    },
  }
}
