/** Where a caller of the control API may have a listener bound: only where the operator said, whatever the path is made to look like. */
import { realpath, stat } from 'node:fs/promises'
import path from 'node:path'
import { parseAddress } from '../../policies/index.ts'
import type { Config } from '../config/schema.ts'
import type { BindAddress } from '../gateway.ts'
import { defaultRuntimeRoot } from '../runtime-root.ts'
import { AdminError } from './admin-error.ts'

/** Where it is asked for. */
export type AskedPlace = { readonly path: string } | { readonly host: string; readonly port: number }

/** The place, checked. @throws AdminError `not_allowed` */
export async function bindPlace(asked: AskedPlace, settings: Config['admin']['bind']): Promise<BindAddress> {
  return 'path' in asked ? { path: await socketPath(asked.path, settings) } : port(asked, settings)
}

/** The real folder counts, so that no link leads out; and only its owner may write there, so that it stays what was checked. */
async function socketPath(
  asked: string,
  { folders = [defaultRuntimeRoot()] }: Config['admin']['bind'],
): Promise<string> {
  const refused = new AdminError('not_allowed', 'no listener may be bound at this path')
  if (!path.isAbsolute(asked) || path.normalize(asked) !== asked || asked.includes('\0') || asked.endsWith('/'))
    throw refused
  const folder = await realpath(path.dirname(asked)).catch(() => undefined)
  if (folder === undefined) throw refused
  const roots = await Promise.all(folders.map((root) => realpath(root).catch(() => undefined)))
  const isBelow = (root: string | undefined): boolean =>
    root !== undefined && (folder === root || folder.startsWith(`${root}/`))
  if (!roots.some(isBelow)) throw refused
  const { uid, mode } = await stat(folder)
  if (uid !== process.geteuid?.() || (mode & 0o022) !== 0) throw refused
  return path.join(folder, path.basename(asked))
}

function port(
  { host, port: number }: { readonly host: string; readonly port: number },
  { addresses }: Config['admin']['bind'],
): BindAddress {
  const asked = parseAddress(host)
  const allowed = addresses
    .map((text) => parseAddress(text))
    .flatMap((address) => (address.ok ? [address.value.text] : []))
  if (!asked.ok || !allowed.includes(asked.value.text))
    throw new AdminError('not_allowed', 'no listener may be bound at this address')
  return { host: asked.value.text, port: number }
}
