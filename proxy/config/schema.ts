/** The one schema of `sallyport.yaml`: what is validated, published as JSON Schema and documented is this, and nothing else. */
import { z } from 'zod'
import { auditSection } from './audit.ts'
import { adminSection } from './admin.ts'
import { issuersSection } from './issuers.ts'
import { listenSection } from './listen.ts'
import { networkSection } from './network.ts'
import { policySection, sniSection } from './policy.ts'
import { limitsSection, logSection, timeoutsSection, workersField } from './runtime.ts'
import { tracingSection } from './tracing.ts'
import { complain } from './values.ts'

/** Where the JSON Schema is published; its `$id`; the file is `schemas/config.schema.json`. */
export const CONFIG_SCHEMA_ID = 'urn:sallyport:schema:config'

/** A whole configuration file. Its output is a {@link Config}. */
export const configSchema = z
  .strictObject({
    $schema: z.string().optional().describe('For editors: the URL or path of the published JSON Schema.'),
    listen: listenSection,
    admin: adminSection,
    state: z
      .string()
      .min(1)
      .default('./.sallyport')
      .describe('Folder for keys, revocations and handles; made with mode 0700, refused when somebody else owns it.'),
    workers: workersField,
    issuers: issuersSection,
    policy: policySection,
    sni: sniSection,
    network: networkSection,
    limits: limitsSection,
    timeouts: timeoutsSection,
    audit: auditSection,
    tracing: tracingSection,
    log: logSection,
  })
  .superRefine((config, context) => {
    if (/^[a-z][a-z0-9+.-]+:\/\//i.test(config.state)) {
      complain(context, 'only a folder can hold the state; a shared store is not served by this version', undefined, [
        'state',
      ])
    }
    complainOfWorkers(context, config)
    const { admin, proxy, bound } = config.listen
    if (admin?.kind === 'tcp' && admin.port !== 0) {
      const shared = [...proxy, ...bound.map(({ address }) => address)].some(
        (address) => address.kind === 'tcp' && address.port === admin.port,
      )
      if (shared)
        complain(context, `the admin listener must not share the port ${admin.port} with the proxy`, undefined, [
          'listen',
          'admin',
        ])
    }
  })
  .transform(({ $schema: _schema, ...config }) => ({
    ...config,
    audit: { ...config.audit, path: config.audit.path ?? `${config.state.replace(/\/+$/, '')}/audit` },
  }))
  .describe('Configuration of the Sallyport gateway.')

/** Of the number of a worker behind the name of the gateway in its audit log: `-` and two digits. */
const LONGEST_NUMBER = 3

/** Workers share ports, and each has an audit log of its own. */
function complainOfWorkers(
  context: z.RefinementCtx,
  {
    workers,
    listen,
    audit,
  }: {
    workers: number
    listen: z.output<typeof listenSection>
    audit: Pick<z.output<typeof auditSection>, 'instance' | 'sinks'>
  },
): void {
  if (workers === 1) return
  const unshared = listen.proxy.find(({ kind }) => kind === 'unix')
  if (unshared !== undefined)
    complain(
      context,
      'a unix socket can not be shared by several `workers`: serve it with a gateway of one, or listen on a port',
      undefined,
      ['listen', 'proxy'],
    )
  if (listen.proxy.length === 0)
    complain(context, 'workers serve `listen.proxy`, which is `off`: leave `workers` at 1', undefined, ['workers'])
  if (audit.sinks.some(({ kind }) => kind === 'stdout'))
    complain(
      context,
      'lines of several `workers` would be mixed up on one standard output: read the files, or take another sink',
      undefined,
      ['audit', 'sinks'],
    )
  if ((audit.instance?.length ?? 0) > 64 - LONGEST_NUMBER)
    complain(context, `has no room for the number of a worker: ${64 - LONGEST_NUMBER} characters at most`, undefined, [
      'audit',
      'instance',
    ])
}

/**
 * A checked configuration, as plain data: every default filled in, durations in seconds, sizes in bytes, listen addresses taken apart.
 * Entries, ranges and names are text that was checked; `policies/` compiles them without a fault.
 */
export type Config = DeepReadonly<z.output<typeof configSchema>>

/** One entry of `issuers`. */
export type IssuerConfig = Config['issuers'][number]

/** What a file may hold: every field optional, spellings as documented. */
export type ConfigInput = DeepReadonly<z.input<typeof configSchema>>

type DeepReadonly<T> = T extends readonly (infer Item)[]
  ? readonly DeepReadonly<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
    : T
