/** The `admin` section: who may use the control API, and what it may do. */
import { z } from 'zod'
import { ADMIN_SCOPES } from '../tokens/admin-token.ts'
import { complain, seconds } from './values.ts'

const client = z
  .strictObject({
    name: z.string().min(1).max(100).describe('Who that is, for the audit log.'),
    certificate: z
      .string()
      .regex(/^[A-Za-z0-9_-]{43}$/, { error: 'expected a SHA-256 thumbprint in base64url (43 characters)' })
      .optional()
      .describe('SHA-256 thumbprint (base64url) of its certificate.'),
    commonName: z
      .string()
      .min(1)
      .max(256)
      .optional()
      .describe(
        'Common name in the subject of its certificate, instead of the thumbprint: for certificates that are renewed.',
      ),
    scopes: z.array(z.enum(ADMIN_SCOPES)).min(1).describe('What it may do; `admin` is everything.'),
  })
  .superRefine(({ certificate, commonName }, context) => {
    if ((certificate === undefined) === (commonName === undefined))
      complain(context, 'exactly one of `certificate` and `commonName` says which certificate it is')
  })
  .describe('A client that shows a certificate.')

const tls = z
  .strictObject({
    cert: z.string().min(1).describe('PEM file with the certificate chain of the admin listener.'),
    key: z.string().min(1).describe('PEM file with its private key.'),
    clientCa: z
      .string()
      .min(1)
      .optional()
      .describe('PEM file with the authorities that sign the certificates of `clients`.'),
  })
  .describe('TLS on the admin listener. Absent: plain. Read at the start.')

/** `admin` of the configuration file. */
export const adminSection = z
  .strictObject({
    open: z
      .array(z.enum(['jwks', 'metrics']))
      .default(['jwks'])
      .describe(
        'What needs no credentials beside `/healthz` and `/readyz`: the public keys at `/.well-known/jwks.json`, and `/metrics`, which else needs the scope `read`.',
      ),
    console: z
      .boolean()
      .default(true)
      .describe(
        'Serves the console at `/console/`: a page without data of its own, whose files need no credentials. All that it shows needs a token.',
      ),
    tls: tls.optional(),
    clients: z
      .array(client)
      .max(1_000)
      .default([])
      .describe('Who is let in by a client certificate, and for what. Needs `tls` with `clientCa`.'),
    requestsPerSecond: z
      .int()
      .min(1)
      .max(100_000)
      .default(100)
      .describe('Requests of one caller in a second, with twice as many at once. Beyond: 429 `rate_limited`.'),
    bind: z
      .strictObject({
        folders: z
          .array(z.string().min(1))
          .optional()
          .describe(
            'Folders below which callers may have unix sockets bound. Absent: the runtime folder of sandboxes of the user of the gateway (`$XDG_RUNTIME_DIR/sallyport` or `/tmp/sallyport-UID`).',
          ),
        addresses: z
          .array(z.string().min(1))
          .default([])
          .describe('Addresses on which callers may have ports bound. Whoever reaches such a port is the sandbox.'),
        listeners: z.int().min(0).max(100_000).default(10_000).describe('Bound listeners of all callers together.'),
        longestLeaseSeconds: seconds(1, 86_400)
          .prefault(3_600)
          .describe('The longest lease: a listener whose caller does not renew it is removed.'),
      })
      .prefault({})
      .describe('Bound listeners that callers of the control API make.'),
  })
  .superRefine(({ clients, tls: listener }, context) => {
    if (clients.length > 0 && listener?.clientCa === undefined)
      complain(context, 'needs `admin.tls` with `clientCa`: the authorities that sign their certificates', undefined, [
        'clients',
      ])
  })
  .prefault({})
  .describe(
    'The control API on the admin listener. Callers bring an admin token (`sallyport token mint --admin`) or a certificate; on a unix socket, which only the user of the gateway can open, they need neither.',
  )
