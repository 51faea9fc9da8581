/** Labels of a sandbox: the caller's, and three of our own for platforms that keep labels, so that another process finds and judges what it did not make. */
import type { SandboxMeta } from './runtime-folder.ts'
import type { SandboxInfo } from './sandbox.ts'

const OWN = ['owner', 'created-at', 'expires-at'] as const
const MAX_LABELS = 32
const MAX_VALUE_LENGTH = 256

/** @throws TypeError for a label that no platform takes, or a name of our own */
export function checkLabels(labels: Readonly<Record<string, string>>): void {
  const entries = Object.entries(labels)
  if (entries.length > MAX_LABELS) throw new TypeError(`a sandbox has at most ${MAX_LABELS} labels`)
  for (const [name, value] of entries) {
    if (!/^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/.test(name))
      throw new TypeError(`\`${name}\` is not the name of a label: 1 to 63 of \`a-z0-9._-\``)
    if ((OWN as readonly string[]).includes(name)) throw new TypeError(`the label \`${name}\` is the provider's own`)
    if (typeof value !== 'string' || value.length > MAX_VALUE_LENGTH || /[^\x20-\x7e]/.test(value)) {
      throw new TypeError(`the label \`${name}\` is not at most ${MAX_VALUE_LENGTH} printable ASCII characters`)
    }
  }
}

/** All labels of a sandbox. */
export function labelsOf({ owner, createdAtMs, expiresAtMs, labels }: SandboxMeta): Readonly<Record<string, string>> {
  return {
    ...labels,
    owner,
    'created-at': new Date(createdAtMs).toISOString(),
    ...(expiresAtMs !== undefined && { 'expires-at': new Date(expiresAtMs).toISOString() }),
  }
}

/** The caller's labels alone. */
export function callersLabels(labels: SandboxInfo['labels']): SandboxInfo['labels'] {
  return Object.fromEntries(Object.entries(labels).filter(([name]) => !(OWN as readonly string[]).includes(name)))
}
