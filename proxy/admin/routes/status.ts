/** `/v1/status`: how the gateway is and what its limits are, on one page. What it counts is at `/metrics`. */
import { z } from 'zod'
import { sinksByName } from '../../audit/sinks/sinks-by-name.ts'
import type { Control } from '../control.ts'
import { type AdminRoute, defineRoute } from '../route.ts'
import { instant } from '../schemas.ts'

const identityLimits = z
  .object({
    tunnels: z.number().optional(),
    newPerSecond: z.number().optional(),
    bytesPerDay: z.number().optional(),
    bytesPerSecond: z.number().optional(),
  })
  .describe('Those that are set.')

const sink = z.object({
  name: z.string(),
  lagRecords: z.number().nonnegative().describe('Lines that it has not taken.'),
  lagSeconds: z.number().nonnegative().describe('Age of the oldest of them.'),
  delivered: z.number().nonnegative().describe('Lines since the start.'),
  failures: z.number().nonnegative().describe('Attempts that failed.'),
  refused: z.number().nonnegative().describe('Lines that it will never take; they stay in the files.'),
  missing: z.number().nonnegative().describe('Lines that were gone from the files before it had taken them.'),
})

const reply = z.object({
  version: z.string(),
  instance: z.string().describe('Name of this gateway in the audit log.'),
  startedAt: instant.describe('Start of the process.'),
  ready: z.boolean(),
  reasons: z.array(z.string()).describe('Why it is not ready, as `/readyz` says.'),
  policyVersion: z.string(),
  workers: z
    .object({
      configured: z.int().positive(),
      serving: z.int().nonnegative(),
      replaced: z.int().nonnegative().describe('Put in the place of others since the start.'),
    })
    .optional()
    .describe('Absent: the gateway is one process.'),
  tunnels: z.object({ open: z.int().nonnegative(), limit: z.int().positive() }),
  limits: z.object({ perSandbox: identityLimits, perTenant: identityLimits }),
  audit: z.object({
    writable: z.boolean(),
    onFailure: z.enum(['deny', 'allow']).describe('What happens to connections while the log can not be written.'),
    sinks: z.array(sink),
  }),
})

/** What the route answers. */
export type StatusShown = z.output<typeof reply>

/** The route. */
export function statusRoutes(control: Control): readonly AdminRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/status',
      id: 'readStatus',
      tag: 'gateway',
      summary: 'Say how the gateway is, and what its limits are',
      scopes: ['read'],
      errors: [],
      reply,
      handle: async () => {
        const { config, clock, tunnels, audit, auditService, policies, notReady, workers, version } = control
        const { limits, audit: settings } = config()
        const reasons = [...notReady()]
        const elsewhere = await workers?.audit()
        const sinks = sinksByName([...(await auditService.sinks()), ...(elsewhere?.sinks ?? [])])
        return {
          version,
          instance: auditService.integrity.read().instance,
          startedAt: new Date(clock.wallMs() - process.uptime() * 1000).toISOString(),
          ready: reasons.length === 0,
          reasons,
          policyVersion: policies.version,
          ...(workers && { workers: workers.counts() }),
          tunnels: { open: tunnels.count(), limit: limits.tunnels },
          limits: { perSandbox: present(limits.perSandbox), perTenant: present(limits.perTenant) },
          audit: {
            writable: audit.isWritable() && elsewhere?.isWritable !== false,
            onFailure: settings.onFailure,
            sinks: sinks.map(({ segment: _segment, ...rest }) => rest),
          },
        }
      },
    }),
  ]
}

function present(limits: Readonly<Record<string, unknown>>): z.input<typeof identityLimits> {
  return Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined))
}
