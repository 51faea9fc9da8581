/** One user for each machine, so that one that breaks out of its program finds nothing of another's. A claim is a file that names the sandbox. */
import { randomInt } from 'node:crypto'
import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { MicrovmError } from './microvm-error.ts'

/** Users that belong to machines alone. */
export interface UidRange {
  readonly first: number
  readonly count: number
}

/** Above those of people and services, and of the ranges that container engines take by default. */
export const DEFAULT_UIDS: UidRange = { first: 3_000_000, count: 10_000 }

/** A user that nobody else has. */
export interface ClaimedUid {
  readonly uid: number
  /** File to be removed when its machine is gone. */
  readonly claim: string
}

/** One for the whole machine: users are the same whatever the runtime root. */
const CLAIMS = '/run/sallyport-microvm/uids'

/**
 * Takes a free one for the machine with this runtime folder; a claim whose folder is gone is free.
 *
 * @throws MicrovmError `quota_exhausted`
 */
export async function claimUid(
  runtimeFolder: string,
  { first, count }: UidRange,
  claims = CLAIMS,
): Promise<ClaimedUid> {
  await mkdir(claims, { recursive: true, mode: 0o700 })
  // From anywhere, so that two who clear away an old claim hardly ever meet at one.
  const start = randomInt(count)
  for (let index = 0; index < count; index++) {
    const uid = first + ((start + index) % count)
    const claim = path.join(claims, String(uid))
    for (let attempt = 0; attempt < 2; attempt++) {
      if (await written(claim, runtimeFolder)) return { uid, claim }
      const holder = await readFile(claim, 'utf8').catch(() => '')
      // Being written right now.
      if (holder === '' || (await isThere(holder))) break
      await rm(claim, { force: true })
    }
  }
  throw new MicrovmError('quota_exhausted', `all ${count} users for microVMs are taken: destroy some, or give a larger range as \`uids\``) // prettier-ignore
}

async function written(file: string, text: string): Promise<boolean> {
  try {
    await writeFile(file, text, { flag: 'wx', mode: 0o600 })
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function isThere(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  )
}
