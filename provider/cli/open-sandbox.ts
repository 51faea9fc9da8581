/** One sandbox behind one gateway, for a command that ends with it. */
import { existsSync, mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import type { NetworkRules } from '../../policies/index.ts'
import { DEVELOPMENT_FOLDER } from '../../proxy/cli/config-file.ts'
import type { Terminal } from '../../proxy/cli/terminal.ts'
import type { MountOption } from '../backends/mounts.ts'
import { INSIDE } from '../backends/inside.ts'
import { createSandboxProvider } from '../create-provider.ts'
import { Transaction } from '../create-transaction.ts'
import { checkRuntimeRoot, defaultRuntimeRoot } from '../runtime-folder.ts'
import type { Sandbox } from '../sandbox.ts'
import { backendFor } from './backends.ts'
import type { DecisionFeed } from './decision-feed.ts'
import { openRunGateway } from './run-gateway.ts'
import type { SandboxRequest } from './sandbox-options.ts'

/** A sandbox that is there. */
export interface OpenSandbox {
  readonly sandbox: Sandbox
  /** Where the caller's folder is inside. */
  readonly folder: string
  /** Those of the sandbox's own doing; not that of the probe at its start. */
  readonly decisions: DecisionFeed
  readonly network: NetworkRules
  /** Ends it and its gateway; then calls back, while the decisions can still be read, and takes the rest away. Idempotent. */
  readonly close: (lastLook?: () => Promise<void>) => Promise<void>
}

/** Of `PATH` inside, where the backend's own has no Node. */
const NODE_FOLDER = path.dirname(INSIDE.node)
const PATH = `/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${NODE_FOLDER}`

/**
 * Makes it; a fault anywhere leaves nothing behind.
 * @throws UsageError and ConfigError for what was asked, SandboxError of the backend
 */
export async function openSandbox(
  terminal: Terminal,
  request: SandboxRequest,
  { label, signal }: { readonly label: string; readonly signal?: AbortSignal },
): Promise<OpenSandbox> {
  const runtimeRoot = checkRuntimeRoot(defaultRuntimeRoot())
  const transaction = new Transaction()
  try {
    const cover = coverKeys(request)
    transaction.undo('cover', cover.remove)
    const { backend, folder } = await backendFor(request.backend, {
      runtimeRoot,
      folder: request.folder,
      image: request.image,
      mounts: [...cover.mounts, ...request.mounts],
    })
    const { gateway, decisions, network, egress, tenant, remove } = await openRunGateway(terminal, runtimeRoot, request)
    transaction.undo('log', remove)
    transaction.undo('gateway', gateway.close)
    const provider = createSandboxProvider({ backend, defaultEgress: egress, gateway, runtimeRoot })
    transaction.undo('provider', async () => provider[Symbol.asyncDispose]())
    const sandbox = await provider.create({
      egress,
      env: { ...(request.backend === 'process' && { PATH }), ...request.env },
      labels: { command: label },
      ...(tenant !== undefined && { tenant }),
      ...(signal !== undefined && { signal }),
    })
    await decisions.read()
    const close = async (lastLook?: () => Promise<void>): Promise<void> => {
      try {
        await provider[Symbol.asyncDispose]()
      } finally {
        await gateway.close()
        await lastLook?.()
        await Promise.all([remove(), cover.remove()])
      }
    }
    let closing: Promise<void> | undefined
    return { sandbox, folder, decisions, network, close: (lastLook) => (closing ??= close(lastLook)) }
  } catch (error) {
    throw await transaction.rollBack(error)
  }
}

interface Cover {
  readonly mounts: readonly MountOption[]
  readonly remove: () => Promise<void>
}

/** The development set-up of a gateway in the current folder holds keys that sign tokens: an empty folder lies over it. */
function coverKeys({ folder, backend }: SandboxRequest): Cover {
  const place = path.join(folder, DEVELOPMENT_FOLDER)
  if (backend === 'passthrough' || !existsSync(place)) return { mounts: [], remove: () => Promise.resolve() }
  const empty = mkdtempSync(path.join(os.tmpdir(), 'sallyport-empty-'))
  return {
    mounts: [{ hostPath: empty, path: place, writable: false }],
    remove: () => rm(empty, { recursive: true, force: true }),
  }
}
