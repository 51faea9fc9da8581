/**
 * The gateway's own keys in its state folder. The newest signs; older ones only verify, and their private parts are gone. A running gateway sees every
 * change within a second, and reads no private key.
 */
import { type JsonWebKey } from 'node:crypto'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { readFile, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { SallyportError } from '../../policies/error.ts'
import { parsed } from '../../policies/parsed.ts'
import { faultCode, openFolder, unusable, writeWhole } from '../state/folder.ts'
import { type KeyDocument, describeIgnored, fileStamp } from './key-file.ts'
import { MAX_KEYS, parseKeySet } from './key-set.ts'
import {
  type GeneratedAlgorithm,
  type SigningKey,
  generateSigningKey,
  privateJwk,
  publicJwk,
  readSigningKey,
} from './signing-key.ts'
import { whyUnreadable } from '../unreadable.ts'

/** One of the gateway's keys, as `keys list` shows it. */
export interface OwnKey {
  readonly kid: string
  readonly algorithm: string
  /** Milliseconds since the epoch. */
  readonly createdAtMs: number
  /** Signs new tokens; the others only verify. */
  readonly isSigning: boolean
}

/** The gateway's own keys. */
export interface OwnKeys {
  /** Newest first. */
  readonly list: () => readonly OwnKey[]
  /**
   * The key that signs; `undefined` before the first was made.
   * @throws SallyportError `SALLYPORT_KEY_UNREADABLE`
   */
  readonly signingKey: () => Promise<SigningKey | undefined>
  /**
   * Makes a key that signs from now on. The one before verifies until it is removed, and can sign no more.
   * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`
   */
  readonly rotate: (algorithm?: GeneratedAlgorithm, nowMs?: number) => Promise<OwnKey>
  /** Forgets a key: what it signed is refused from now on. `false` when there is none of that name. */
  readonly remove: (kid: string) => Promise<boolean>
  /** The public keys as a JWK set, for `/.well-known/jwks.json`. */
  readonly publicJwks: () => { readonly keys: readonly JsonWebKey[] }
  /** The same for an issuer with `stateKeys`. */
  readonly document: KeyDocument
}

const PUBLIC = '.public.jwk'
const PRIVATE = '.private.jwk'

/** Names that {@link generateSigningKey} makes; a `kid` from elsewhere never becomes a path. */
const KEY_ID = /^[0-9a-f]{16}$/

/**
 * Opens the keys below a state folder.
 * @throws SallyportError `SALLYPORT_STATE_UNUSABLE`
 */
export async function openKeys(statePath: string): Promise<OwnKeys> {
  const path = join(statePath, 'keys')
  await openFolder(statePath)
  await openFolder(path)

  async function signingKey(): Promise<SigningKey | undefined> {
    const signing = listKeys(path).find((key) => key.isSigning)
    if (!signing) return undefined
    const file = join(path, signing.kid + PRIVATE)
    try {
      return readSigningKey(await readFile(file, 'utf8'))
    } catch (error) {
      if (error instanceof SallyportError) throw error
      throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `key \`${file}\` can't be read (${whyUnreadable(error)})`)
    }
  }

  async function rotate(algorithm: GeneratedAlgorithm = 'ES256', nowMs = Date.now()): Promise<OwnKey> {
    await openFolder(path)
    const before = listKeys(path)
    if (before.length >= MAX_KEYS) throw unusable(path, `holds ${MAX_KEYS} keys; remove old ones first`)
    const key = generateSigningKey(algorithm)
    const kid = key.kid ?? ''
    // Never older than the key it follows, whatever the clock does.
    const createdAtMs = Math.max(nowMs, ...before.map((other) => other.createdAtMs + 1))
    const jwk = { ...publicJwk(key), created_at: new Date(createdAtMs).toISOString() }
    // Public first: by the time something is signed with it, gateways can know it.
    await writeWhole(join(path, kid + PUBLIC), `${JSON.stringify(jwk)}\n`)
    await writeWhole(join(path, kid + PRIVATE), `${JSON.stringify(privateJwk(key))}\n`)
    for (const other of before) await unlinkIfThere(join(path, other.kid + PRIVATE))
    return { kid, algorithm, createdAtMs, isSigning: true }
  }

  async function remove(kid: string): Promise<boolean> {
    if (!KEY_ID.test(kid)) return false
    await unlinkIfThere(join(path, kid + PRIVATE))
    return unlinkIfThere(join(path, kid + PUBLIC))
  }

  return {
    list: () => listKeys(path),
    signingKey,
    rotate,
    remove,
    publicJwks: () => ({ keys: readPublicKeys(path).map(({ created_at: _created, ...jwk }) => jwk) }),
    document: {
      name: `keys \`${path}\``,
      stamp: () => fileStamp(path),
      read: () => {
        const set = parseKeySet(Buffer.from(JSON.stringify({ keys: readPublicKeys(path) })))
        return set.ok ? parsed({ keys: set.value.keys, detail: describeIgnored(set.value) }) : set
      },
    },
  }
}

/** How many keys a state folder holds; 0 also where there is none, and nothing is made. */
export function countOwnKeys(statePath: string): number {
  try {
    return readdirSync(join(statePath, 'keys')).filter(isPublicName).length
  } catch {
    return 0
  }
}

const isPublicName = (name: string): boolean => name.endsWith(PUBLIC) && KEY_ID.test(name.slice(0, -PUBLIC.length))

function listKeys(path: string): OwnKey[] {
  const keys = readPublicKeys(path)
    .map((jwk) => ({
      kid: String(jwk['kid']),
      algorithm: String(jwk['alg']),
      createdAtMs: Date.parse(String(jwk['created_at'])),
    }))
    .sort((one, other) => other.createdAtMs - one.createdAtMs)
  const signing = keys.find((key) => existsSync(join(path, key.kid + PRIVATE)))
  return keys.map((key) => ({ ...key, isSigning: key === signing }))
}

/** A file that vanishes while this reads was removed: then it is not there. */
function readPublicKeys(path: string): Record<string, unknown>[] {
  const names = readdirSync(path).filter(isPublicName)
  return names.flatMap((name) => {
    try {
      return [JSON.parse(readFileSync(join(path, name), 'utf8')) as Record<string, unknown>]
    } catch (error) {
      if (faultCode(error) === 'ENOENT') return []
      throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `key \`${join(path, name)}\` can't be read`)
    }
  })
}

async function unlinkIfThere(file: string): Promise<boolean> {
  try {
    await unlink(file)
    return true
  } catch (error) {
    if (faultCode(error) === 'ENOENT') return false
    throw unusable(file, `can't be deleted (${whyUnreadable(error)})`, error)
  }
}
