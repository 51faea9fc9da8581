/** Keys from the file system, looked at again every second and whenever a token names an unknown key; a bad file keeps the last good keys. */
import { readFileSync, statSync } from 'node:fs'
import { SallyportError } from '../../policies/error.ts'
import { type Parsed, faulty, parsed } from '../../policies/parsed.ts'
import { whyUnreadable } from '../unreadable.ts'
import { MAX_DOCUMENT_BYTES } from './fetch-document.ts'
import { type VerificationKey, parseKeySet } from './key-set.ts'
import { HeldKeys, type KeyEvent, type KeySource, MIN_SECRET_BYTES, secretKey } from './key-source.ts'

/** Milliseconds between two looks: a key taken out of the file verifies nothing a second later. */
const LOOK_EVERY_MS = 1_000

/** Keys somewhere in the file system, as {@link fileKeys} polls them. Both may throw what `node:fs` throws. */
export interface KeyDocument {
  /** For messages. */
  readonly name: string
  /** Changes whenever the content may have. */
  readonly stamp: () => string
  readonly read: () => Parsed<{ readonly keys: readonly VerificationKey[]; readonly detail: string | undefined }>
}

/** A JWK set in a file. */
export function keySetFile(path: string): KeyDocument {
  return {
    name: `key set \`${path}\``,
    stamp: () => fileStamp(path),
    read: () => {
      const set = parseKeySet(readBounded(path))
      return set.ok ? parsed({ keys: set.value.keys, detail: describeIgnored(set.value) }) : set
    },
  }
}

/** The secret of HS256 in a file: its bytes, one trailing newline cut. */
export function secretFile(path: string): KeyDocument {
  return {
    name: `secret file \`${path}\``,
    stamp: () => fileStamp(path),
    read: () => {
      const bytes = readBounded(path)
      const secret = bytes.at(-1) === 0x0a ? bytes.subarray(0, -1) : bytes
      if (secret.length >= MIN_SECRET_BYTES) return parsed({ keys: [secretKey(secret)], detail: undefined })
      return faulty('secret_short', `the secret has ${secret.length} bytes; HS256 needs ${MIN_SECRET_BYTES} or more`)
    },
  }
}

/** What was left out of a set, in words for the log. */
export function describeIgnored(set: {
  readonly ignored: number
  readonly firstIgnored: string | undefined
}): string | undefined {
  return set.ignored === 0 ? undefined : `${set.ignored} keys left out, the first as ${set.firstIgnored ?? 'unusable'}`
}

/**
 * Reads a document now and watches it from then on.
 * @throws SallyportError `SALLYPORT_KEY_UNREADABLE` when the first read fails
 */
export function fileKeys(document: KeyDocument, onEvent: (event: KeyEvent) => void): KeySource {
  const held = new HeldKeys()
  let stamp: string | undefined
  let lastFault: string | undefined

  /** Whether other keys are held than before. A fault is told once, not every second. */
  function look(): boolean {
    const outcome = attempt()
    if (outcome === undefined) return false
    if (!outcome.ok) {
      if (outcome.fault.message !== lastFault) {
        onEvent({ result: 'failed', keys: held.size, detail: `${document.name}: ${outcome.fault.message}` })
      }
      lastFault = outcome.fault.message
      return false
    }
    lastFault = undefined
    const changed = held.replace(outcome.value.keys)
    onEvent({ result: changed ? 'loaded' : 'unchanged', keys: held.size, detail: outcome.value.detail })
    return changed
  }

  /** `undefined` when nothing changed since the last look. */
  function attempt(): ReturnType<KeyDocument['read']> | undefined {
    try {
      const seen = document.stamp()
      if (seen === stamp) return undefined
      const content = document.read()
      stamp = seen
      return content
    } catch (error) {
      stamp = undefined
      return faulty('unreadable', `can't be read (${whyUnreadable(error)})`)
    }
  }

  look()
  if (lastFault !== undefined) throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `${document.name}: ${lastFault}`)
  const timer = setInterval(look, LOOK_EVERY_MS).unref()
  return {
    find: (algorithm, kid) => held.find(algorithm, algorithm === 'HS256' ? undefined : kid),
    holds: (key) => held.has(key),
    lacks: (key) => !held.has(key),
    refresh: look,
    size: () => held.size,
    close: () => clearInterval(timer),
  }
}

/** File systems keep time in ticks of some milliseconds: what changed just now may change again under the same time. */
const SETTLED_MS = 100

/** Differs whenever a file or folder may hold something else than before; one that changed just now always counts as changed. */
export function fileStamp(path: string): string {
  const { mtimeMs, ctimeMs, size, ino } = statSync(path)
  const now = Date.now()
  return [mtimeMs, ctimeMs, size, ino, now - ctimeMs < SETTLED_MS ? now : ''].join(':')
}

function readBounded(path: string): Buffer {
  const { size } = statSync(path)
  if (size > MAX_DOCUMENT_BYTES) throw Object.assign(new Error('too large'), { code: 'EFBIG' })
  return readFileSync(path)
}
