/** Checkpoints: lines that are signed, and with their own `prev` everything before them. */
import { sign, verify } from 'node:crypto'
import type { SigningKey, VerifyKey } from './key.ts'

/** Part of the format: a log with more lines than this in a row that no checkpoint covers is not one that a gateway wrote. */
export const MAX_UNSIGNED_LINES = 1000

/** After how many lines the writer signs: short of the bound, since runs that are killed at once leave a line or two each. */
export const CHECKPOINT_LINES = 900

const MARK = ',"signature":"'

/** Closes the open object that `formatEntry` made, with the chain and the signature. The signed bytes are the line up to `,"signature"`. */
export function signLine(body: string, head: string, key: SigningKey): string {
  const signed = `${body},"prev":"${head}","signer":"${key.id}"`
  return `${signed}${MARK}${sign(null, Buffer.from(signed, 'latin1'), key.privateKey).toString('base64url')}"}\n`
}

/** Whether the signature in `line` is right; `line` may end in its newline. Texts in a line can't hold the mark, since their quotes are escaped. */
export function isSignatureValid(line: string, key: VerifyKey): boolean {
  const at = line.lastIndexOf(MARK)
  const match = /^,"signature":"([A-Za-z0-9_-]{86})"\}\n?$/.exec(line.slice(at))
  const signature = match?.[1]
  if (at === -1 || signature === undefined) return false
  return verify(null, Buffer.from(line.slice(0, at), 'latin1'), key.publicKey, Buffer.from(signature, 'base64url'))
}
