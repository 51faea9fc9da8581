/** Parts that the requests and answers of several routes share. */
import { z } from 'zod'
import { AdminError } from './admin-error.ts'

/** A name of a sandbox, tenant or token. */
export const name = z.string().min(1).max(512)

/** A tenant, as policies and configurations name it. */
export const tenantName = z.string().min(1).max(100)

/** A moment, in UTC. */
export const instant = z.iso.datetime().describe('UTC, RFC 3339')

/** The query of a list: how much, and from where. */
export const page = {
  limit: z
    .string()
    .regex(/^[1-9]\d{0,2}$|^1000$/, { error: 'expected a number from 1 to 1000' })
    .optional()
    .describe('Most entries in the answer, 1 to 1000. Default 100.'),
  cursor: z.string().max(4_096).optional().describe('From the answer before: goes on after it.'),
}

/** The end of a list's answer. */
export const nextCursor = z.string().optional().describe('There is more: send this as `cursor`.')

/** Of an answer that every worker has to agree with. */
export const endedWorkers = z
  .int()
  .positive()
  .optional()
  .describe(
    'With `workers`: so many did not confirm the change in time, and were ended with all that they carried; it is in force everywhere. Absent: all confirmed.',
  )

/** How many are wanted. */
export function limitOf({ limit }: { readonly limit?: string | undefined }): number {
  return limit === undefined ? 100 : Number(limit)
}

/** Milliseconds as RFC 3339; `undefined` for what never comes. */
export function instantOf(ms: number): string | undefined {
  return Number.isFinite(ms) ? new Date(ms).toISOString() : undefined
}

/**
 * One page of a list that is in memory, in a fixed order: `keyOf` grows along it.
 * @throws AdminError for a cursor that is none
 */
export function pageOf<T>(
  all: readonly T[],
  query: { readonly limit?: string | undefined; readonly cursor?: string | undefined },
  keyOf: (item: T) => string,
): { readonly items: readonly T[]; readonly next?: string } {
  const { after } = pieceFor(query)
  const rest = after === undefined ? all : all.filter((item) => keyOf(item) > after)
  const items = rest.slice(0, limitOf(query))
  const last = items.at(-1)
  return last !== undefined && items.length < rest.length ? { items, next: printCursor(keyOf(last)) } : { items }
}

/**
 * What of a sorted list {@link pageOf} has to be given to make that page of it: one more than the page shows, so that the end is known.
 * @throws AdminError for a cursor that is none
 */
export function pieceFor(query: { readonly limit?: string | undefined; readonly cursor?: string | undefined }): {
  readonly after: string | undefined
  readonly limit: number
} {
  return { after: query.cursor === undefined ? undefined : readCursor(query.cursor), limit: limitOf(query) + 1 }
}

function printCursor(key: string): string {
  return Buffer.from(key).toString('base64url')
}

function readCursor(cursor: string): string {
  if (/^[A-Za-z0-9_-]+$/.test(cursor)) return Buffer.from(cursor, 'base64url').toString()
  throw new AdminError('request_malformed', '`query.cursor`: is no cursor of this list', {
    faults: [{ path: 'query.cursor', message: 'is no cursor of this list' }],
  })
}
