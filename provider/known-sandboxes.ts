/** Which sandboxes of a backend there are, whoever made them: what the runtime folders and the platform know, put together. */
import type { Backend } from './backend.ts'
import { callersLabels } from './labels.ts'
import { type OwnerState, stateOfOwner } from './owner.ts'
import { isSandboxId, readMetas, type SandboxMeta } from './runtime-folder.ts'
import type { SandboxInfo } from './sandbox.ts'

/** One of them. */
export interface KnownSandbox {
  readonly info: SandboxInfo
  readonly owner: OwnerState
  /** Undefined when the platform alone knows of it. */
  readonly meta: SandboxMeta | undefined
}

/** All, oldest first; also those whose host is gone. */
export async function knownSandboxes(backend: Backend, runtimeRoot: string): Promise<readonly KnownSandbox[]> {
  const [infos, metas] = await Promise.all([backend.list(), readMetas(runtimeRoot, backend.name)])
  const known = new Map<string, KnownSandbox>()
  for (const info of infos) {
    if (!isSandboxId(info.id)) continue
    known.set(info.id, {
      info: { ...info, labels: callersLabels(info.labels) },
      owner: await stateOfOwner(info.labels['owner']),
      meta: undefined,
    })
  }
  for (const meta of metas) {
    const { id, createdAtMs, expiresAtMs, labels } = meta
    const platform = known.get(id)?.info.platform
    const info = { id, createdAtMs, ...(expiresAtMs !== undefined && { expiresAtMs }), labels, ...(platform && { platform }) } // prettier-ignore
    known.set(id, { info, owner: await stateOfOwner(meta.owner), meta })
  }
  return [...known.values()].sort((a, b) => a.info.createdAtMs - b.info.createdAtMs)
}
