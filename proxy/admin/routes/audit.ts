/** `/v1/audit`: lines of the log, as they are in the files: a page of them, as they come, or counted. Proves nothing of them; `sallyport audit verify` does. */
import { z } from 'zod'
import { SallyportError } from '../../../policies/error.ts'
import type { AuditFilters } from '../../audit/match.ts'
import { auditLineSchema } from '../../audit/schema.ts'
import { tailAudit, type Tailed } from '../../audit/tail.ts'
import { AdminError } from '../admin-error.ts'
import type { Control } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { instant, limitOf, name, nextCursor, page } from '../schemas.ts'

/** For one look through the files. */
const SCAN_MS = 20_000
/** At a time: each reads files. */
const MAX_SCANS = 4
const MAX_STREAMS = 32
const DEFAULT_PERIOD_MS = 3_600_000
const MAX_TOP = 100
const MAX_BUCKETS = 60

const filters = {
  kind: z.enum(['auth', 'decision', 'close', 'admin']).optional(),
  tenant: name.optional(),
  sandbox: name.optional(),
  host: name.optional().describe('In canonical form.'),
  reason: name.optional(),
  decision: z.enum(['allow', 'deny']).optional(),
  effective: z.enum(['allow', 'deny']).optional(),
  requestId: name.optional(),
  tokenId: name.optional(),
  instance: name.optional(),
}
const period = {
  since: instant.optional().describe('Not before.'),
  until: instant.optional().describe('Before.'),
}

const line = z.string().regex(/^\d{1,3}$|^1000$/, { error: 'expected a number from 0 to 1000' })

const counts = z.array(z.object({ name: z.string(), count: z.int().positive() }))

const summary = z.object({
  since: instant,
  until: instant,
  allowed: z.int().nonnegative(),
  refused: z.int().nonnegative(),
  reported: z.int().nonnegative().describe('Let out by a layer that only reports.'),
  credentialsRefused: z.int().nonnegative(),
  refusedHosts: counts,
  refusedTenants: counts,
  reasons: counts,
  exact: z.boolean().describe('`false` when there were more names than are counted apart.'),
  series: z
    .array(
      z.object({
        start: instant,
        refused: z.int().nonnegative(),
        hosts: z.array(z.int().nonnegative()).describe('Of each of `refusedHosts`, in their order.'),
      }),
    )
    .optional()
    .describe('With `buckets`: refusals in each part of the period, earliest first.'),
})

/** What the summary answers. */
export type SummaryShown = z.output<typeof summary>

/** The routes. */
export function auditRoutes(control: Control): readonly AdminRoute[] {
  const path = (): string => control.config().audit.path
  const scans = limited(MAX_SCANS, 'too many look through the audit log already')
  const streams = limited(MAX_STREAMS, 'too many follow the audit log already')
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/audit',
      id: 'queryAudit',
      tag: 'audit',
      summary: 'Find lines of the audit log, oldest first',
      scopes: ['read'],
      errors: [],
      query: z.strictObject({ ...page, ...filters, ...period }),
      reply: z.object({ lines: z.array(auditLineSchema), cursor: nextCursor }),
      handle: ({ query, signal }) =>
        scans(async () => {
          const asked = { filters: filtersOf(query), limit: limitOf(query), cursor: query.cursor }
          const { lines, cursor } = await withinTime(signal, (deadline) => control.auditReader.lines(asked, deadline))
          return { lines: [...lines], ...(cursor !== undefined && { cursor }) }
        }),
    }),
    defineRoute({
      method: 'GET',
      path: '/v1/audit/stream',
      id: 'followAudit',
      tag: 'audit',
      summary: 'Follow the audit log: one server-sent event a line, in its `data`',
      scopes: ['read'],
      errors: [],
      query: z.strictObject({
        ...filters,
        lines: line.optional().describe('Begins with so many of the last ones. Default 0.'),
      }),
      handle: ({ query: { lines, ...query }, signal }) =>
        streams.generator(() => events(tailAudit({ path: path(), filters: filtersOf(query), lines: Number(lines ?? 0), signal }))), // prettier-ignore
    }),
    defineRoute({
      method: 'GET',
      path: '/v1/audit/summary',
      id: 'summarizeAudit',
      tag: 'audit',
      summary:
        'Count decisions over a period (an hour by default): the hosts, tenants and reasons that were refused most',
      scopes: ['read'],
      errors: [],
      query: z.strictObject({
        ...period,
        tenant: name.optional(),
        sandbox: name.optional(),
        host: name.optional().describe('In canonical form.'),
        buckets: z
          .string()
          .regex(/^[1-9]$|^[1-5]\d$|^60$/, { error: `expected a number from 1 to ${MAX_BUCKETS}` })
          .optional()
          .describe('Counts refusals also in so many equal parts of the period.'),
        top: z
          .string()
          .regex(/^[1-9]\d?$|^100$/, { error: `expected a number from 1 to ${MAX_TOP}` })
          .optional()
          .describe('Of each ranking. Default 10.'),
      }),
      reply: summary,
      handle: ({ query, signal }) =>
        scans(() =>
          withinTime(signal, async (deadline) => {
            const untilMs = query.until === undefined ? control.clock.wallMs() : Date.parse(query.until)
            const sinceMs = query.since === undefined ? untilMs - DEFAULT_PERIOD_MS : Date.parse(query.since)
            const { tenant, sandbox, host } = query
            const filters = { tenant, sandbox, host, sinceMs, untilMs }
            const options = {
              top: Number(query.top ?? 10),
              ...(query.buckets !== undefined && { series: { sinceMs, untilMs, buckets: Number(query.buckets) } }),
            }
            const result = await control.auditReader.summary(filters, options, deadline)
            return { since: new Date(sinceMs).toISOString(), until: new Date(untilMs).toISOString(), ...result }
          }),
        ),
    }),
  ]
}

async function* events(tail: AsyncIterable<Tailed>): AsyncGenerator<string, void, undefined> {
  for await (const { line, text } of tail) {
    // A line is one line of ASCII, whatever was in it.
    yield `id: ${line.instance}:${line.seq}\nevent: ${line.kind}\ndata: ${text}\n\n`
  }
}

type Filters = { readonly [Name in keyof typeof filters | keyof typeof period]?: string | undefined }

function filtersOf({
  requestId,
  tokenId,
  since,
  until,
  ...rest
}: Filters & Readonly<Record<string, unknown>>): AuditFilters {
  const { kind, tenant, sandbox, host, reason, decision, effective, instance } = rest
  return {
    kind,
    tenant,
    sandbox,
    host,
    reason,
    decision,
    effective,
    instance,
    request_id: requestId,
    token_id: tokenId,
    ...(since !== undefined && { sinceMs: Date.parse(since) }),
    ...(until !== undefined && { untilMs: Date.parse(until) }),
  }
}

/** @throws AdminError `busy` when it takes too long, `request_malformed` for a cursor that is none */
async function withinTime<T>(signal: AbortSignal, work: (deadline: AbortSignal) => Promise<T>): Promise<T> {
  const time = AbortSignal.timeout(SCAN_MS)
  try {
    const result = await work(AbortSignal.any([signal, time]))
    if (!time.aborted) return result
  } catch (error) {
    if (error instanceof SallyportError && error.message.includes('cursor'))
      throw new AdminError('request_malformed', '`query.cursor`: is no cursor of this query')
    if (error instanceof SallyportError && error.message.includes('name one instance'))
      throw new AdminError('request_malformed', '`query.instance`: the folder holds the logs of too many; name one')
    if (!time.aborted) throw error
  }
  throw new AdminError(
    'busy',
    `looking through the audit log took more than ${SCAN_MS / 1000} s; ask for a shorter period`,
  )
}

interface Limited {
  <T>(work: () => Promise<T>): Promise<T>
  /** The same for what is read bit by bit. */
  readonly generator: (make: () => AsyncGenerator<string, void, undefined>) => AsyncGenerator<string, void, undefined>
}

/** At most `most` at a time. @throws AdminError `busy` */
function limited(most: number, message: string): Limited {
  let running = 0
  const enter = (): void => {
    if (running >= most) throw new AdminError('busy', message)
    running++
  }
  const run = async <T>(work: () => Promise<T>): Promise<T> => {
    enter()
    try {
      return await work()
    } finally {
      running--
    }
  }
  return Object.assign(run, {
    generator: (make: () => AsyncGenerator<string, void, undefined>) => {
      enter()
      return counted(make(), () => running--)
    },
  })
}

async function* counted(
  events: AsyncGenerator<string, void, undefined>,
  done: () => void,
): AsyncGenerator<string, void, undefined> {
  try {
    yield* events
  } finally {
    done()
  }
}
