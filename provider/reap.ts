/** Takes away what nobody will: sandboxes that are too old, past their end, or whose host is gone; and gateways' folders whose host is gone. */
import { readdir, readFile, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import type { Workshop } from './create-sandbox.ts'
import { GATEWAY_FOLDER, GATEWAY_OWNER_FILE } from './egress/embedded.ts'
import type { KnownSandbox } from './known-sandboxes.ts'
import { stateOfOwner } from './owner.ts'
import { pathsOf, removeRuntimeFolder } from './runtime-folder.ts'

/** Whether a sandbox is to go. One whose host can't be seen from here goes by its age alone. */
export function isDue({ info, owner }: KnownSandbox, olderThanMs: number, nowMs: number): boolean {
  const isPast = info.expiresAtMs !== undefined && info.expiresAtMs <= nowMs
  return owner === 'gone' || isPast || nowMs - info.createdAtMs > olderThanMs
}

/** Destroys a sandbox that another process made, or what is left of it: its way out first. */
export async function destroyForeign({ backend, egress, runtimeRoot }: Workshop, id: string): Promise<void> {
  await rm(pathsOf(runtimeRoot, id).gatewaySocket, { force: true })
  const revoked = egress.revoke?.(id)
  revoked?.catch(() => undefined)
  await (await backend.attach(id))?.stop()
  await revoked
  await removeRuntimeFolder(runtimeRoot, id)
}

/** Removes state and audit log of gateways that ended with their process more than `olderThanMs` ago. */
export async function reapGatewayFolders(runtimeRoot: string, olderThanMs: number): Promise<void> {
  const names = await readdir(runtimeRoot).catch(() => [])
  for (const name of names.filter((each) => GATEWAY_FOLDER.test(each))) {
    const folder = path.join(runtimeRoot, name)
    const owner = await readFile(path.join(folder, GATEWAY_OWNER_FILE), 'utf8').catch(() => undefined)
    if (owner === undefined || (await stateOfOwner(owner)) !== 'gone') continue
    const lastWriteMs = await newestWrite(folder)
    if (Date.now() - lastWriteMs > olderThanMs) await rm(folder, { recursive: true, force: true })
  }
}

async function newestWrite(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true }).catch(() => [])
  const times = await Promise.all(
    entries.map((entry) =>
      stat(path.join(folder, entry)).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0,
      ),
    ),
  )
  return Math.max(0, ...times)
}
