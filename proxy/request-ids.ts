/** Names of requests, in replies and audit lines. */
import { randomBytes } from 'node:crypto'

/** Unique in this process and, by its random part, among processes. */
export function requestIds(): () => string {
  const prefix = randomBytes(6).toString('base64url')
  let count = 0
  return () => `${prefix}-${(count++).toString(36)}`
}
