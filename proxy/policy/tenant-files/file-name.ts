/** Which tenant does a file stand for? One name for each, so that no two names mean one tenant, and none leads out of its folder. */

/** The longest name of a tenant. */
const MAX_TENANT = 100
const EXTENSION = /\.(?:yaml|yml|json)$/

/** What a name of a file says. */
export type NamedFile =
  /** Hidden, or of another kind: no affair of ours, such as `..data`, `README` or what an editor keeps. */
  | { readonly kind: 'other' }
  | { readonly kind: 'tenant'; readonly tenant: string }
  /** It has the ending of a policy, and stands for nobody. */
  | { readonly kind: 'misnamed'; readonly why: string }

/**
 * Reads the name of a file: the tenant's, and `.yaml`, `.yml` or `.json`. Letters, digits, `-`, `_` and `.` (not as the first) stand for themselves; every other
 * byte of its UTF-8 is `%` and two upper-case digits. Cases and Unicode are not folded: whatever else a file system makes of names, this is the name that it lists.
 */
export function readFileName(name: string): NamedFile {
  if (name.startsWith('.') || !EXTENSION.test(name)) return { kind: 'other' }
  const base = name.replace(EXTENSION, '')
  const tenant = decode(base)
  if (tenant !== undefined && tenant.length <= MAX_TENANT && encodeTenant(tenant) === base)
    return { kind: 'tenant', tenant }
  const why =
    'a file is called by its tenant: letters, digits, `-`, `_` and `.` as they are, any other byte as `%` and two upper-case digits'
  return { kind: 'misnamed', why }
}

/** The name of a tenant's file, without its ending. */
export function encodeTenant(tenant: string): string {
  return [...Buffer.from(tenant, 'utf8')]
    .map((byte, index) => {
      const character = String.fromCharCode(byte)
      const isPlain = /[A-Za-z0-9_-]/.test(character) || (character === '.' && index > 0)
      return isPlain ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
    })
    .join('')
}

function decode(base: string): string | undefined {
  if (!/^(?:[A-Za-z0-9._-]|%[0-9A-F]{2})+$/.test(base)) return undefined
  const bytes = base
    .match(/%..|./g)
    ?.map((part) => (part.length === 3 ? parseInt(part.slice(1), 16) : part.charCodeAt(0)))
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes ?? []))
  } catch {
    return undefined
  }
}
