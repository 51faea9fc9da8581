/** Where the keys of an issuer come from, as the identifier sees it: what is held now, and whether looking again may help. */
import { createSecretKey, hash } from 'node:crypto'
import { type TokenAlgorithm, type VerificationKey, selectKey } from './key-set.ts'

/** Something happened to the keys of an issuer; for metrics and the log. Holds no key. */
export interface KeyEvent {
  /** `loaded`: other keys than before; `unchanged`; `failed`: the last good set is kept. */
  readonly result: 'loaded' | 'unchanged' | 'failed'
  /** Keys held after it. */
  readonly keys: number
  /** What went wrong, or what was left out; fit to print. */
  readonly detail: string | undefined
}

/** The keys of one issuer. */
export interface KeySource {
  /** The key that a token's header means, among those held now. */
  readonly find: (algorithm: TokenAlgorithm, kid: string | undefined) => VerificationKey | undefined
  /** Whether a key that verified something earlier is still held and good. Cheap: asked at every cached verdict. */
  readonly holds: (key: VerificationKey) => boolean
  /** Whether a key that verified something earlier was taken out. `false` while no set was seen yet. */
  readonly lacks: (key: VerificationKey) => boolean
  /**
   * Looks again, since a token named a key that is not held; `true` when other keys are held now. Bounded: a source over the network looks at most
   * once in its cooldown, however many tokens ask.
   */
  readonly refresh: () => boolean | Promise<boolean>
  /** Keys held now; 0 before the first set came. */
  readonly size: () => number
  /** Stops looking; idempotent. */
  readonly close: () => void
}

/** A set in which equal keys stay the same objects when the set is replaced, so that what they verified stays verified. */
export class HeldKeys {
  #keys: readonly VerificationKey[] = []
  #fingerprints: ReadonlySet<string> = new Set()

  /** Keys in the set. */
  get size(): number {
    return this.#keys.length
  }

  /** Takes over a new set; `true` when it differs from the last. */
  replace(keys: readonly VerificationKey[]): boolean {
    const known = new Map(this.#keys.map((key) => [key.fingerprint, key]))
    const changed = keys.length !== known.size || keys.some((key) => !known.has(key.fingerprint))
    this.#keys = keys.map((key) => known.get(key.fingerprint) ?? key)
    this.#fingerprints = new Set(this.#keys.map((key) => key.fingerprint))
    return changed
  }

  /** The one key that is meant. */
  find(algorithm: TokenAlgorithm, kid: string | undefined): VerificationKey | undefined {
    return selectKey(this.#keys, algorithm, kid)
  }

  /** Whether this key is in the set. */
  has(key: VerificationKey): boolean {
    return this.#fingerprints.has(key.fingerprint)
  }
}

/** Least bytes of an HS256 secret: as many as the hash has. @see RFC 7518 section 3.2 */
export const MIN_SECRET_BYTES = 32

/** The one key of an issuer that signs with a secret. It has no name: a `kid` in a token is ignored. */
export function secretKey(secret: Uint8Array): VerificationKey {
  const key = createSecretKey(secret)
  // Hashed under a label of its own: the fingerprint is compared, and must not be the plain hash of a secret.
  return { kid: undefined, algorithms: ['HS256'], key, fingerprint: hash('sha256', Buffer.concat([LABEL, secret])) }
}

const LABEL = Buffer.from('sallyport secret fingerprint\0')

/** A source that never changes. */
export function fixedKeys(keys: readonly VerificationKey[]): KeySource {
  const held = new HeldKeys()
  held.replace(keys)
  return {
    find: (algorithm, kid) => held.find(algorithm, algorithm === 'HS256' ? undefined : kid),
    holds: (key) => held.has(key),
    lacks: (key) => !held.has(key),
    refresh: () => false,
    size: () => held.size,
    close: () => undefined,
  }
}
