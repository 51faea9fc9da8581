/** The `listen` section: where clients and operators reach the gateway. */
import { z } from 'zod'
import { plainPolicy } from './policy.ts'
import { listenAddress } from './values.ts'

const tls = z
  .strictObject({
    cert: z
      .string()
      .min(1)
      .describe('PEM file with the certificate chain of the gateway. Read again when it is renewed.'),
    key: z.string().min(1).describe('PEM file with its private key.'),
    clientCa: z
      .string()
      .min(1)
      .optional()
      .describe(
        'PEM file with the authorities whose client certificates are accepted; tokens bound to a certificate (`cnf`) need it.',
      ),
    clientCertificate: z
      .enum(['optional', 'required'])
      .default('optional')
      .describe('Whether a client without a certificate may connect at all. `required` needs `clientCa`.'),
  })
  .refine(({ clientCa, clientCertificate }) => clientCertificate === 'optional' || clientCa !== undefined, {
    path: ['clientCertificate'],
    error: '`required` needs `clientCa`: the authorities whose certificates are accepted',
  })
  .describe('TLS between the client and the gateway. Absent: plain.')

const bound = z
  .strictObject({
    address: listenAddress().describe('`address:port` or `unix:/path`, for this one sandbox alone. Never TLS.'),
    sandbox: z.string().min(1).max(512).describe('The sandbox id of whoever connects here.'),
    tenant: z.string().min(1).max(512).optional().describe('Its tenant. Absent: no tenant layer.'),
    egress: plainPolicy.prefault({ kind: 'deny-all' }).describe('What the sandbox asks for, as a token would say it.'),
  })
  .describe('A listener that stands for one sandbox, which then needs no token.')

/** `listen` of the configuration file. */
export const listenSection = z
  .strictObject({
    proxy: z
      .union([z.literal('off').transform(() => []), listenAddress(), z.array(listenAddress()).min(1)], {
        error: 'expected `address:port` such as `127.0.0.1:3128`, `unix:/path`, a list of them, or `off`',
      })
      .prefault('127.0.0.1:3128')
      .transform((value) => (Array.isArray(value) ? value : [value]))
      .describe(
        'Where clients connect: `address:port` or `unix:/path`, or a list of them. HTTP and SOCKS5 share it. `off` is for gateways that only have listeners bound to sandboxes.',
      ),
    admin: z
      .union([z.literal('off').transform(() => undefined), listenAddress()], {
        error: 'expected `address:port` such as `127.0.0.1:9090`, `unix:/path`, or `off`',
      })
      .prefault('127.0.0.1:9090')
      .describe(
        'Health, metrics and the control API: `address:port`, `unix:/path` or `off`. Never on the port of the proxy. Who may do what there is in `admin`; a unix socket is for the user of the gateway alone, who may do everything.',
      ),
    bound: z
      .array(bound)
      .max(1_000)
      .default([])
      .describe(
        'Listeners that stand for one sandbox each: whoever reaches one is that sandbox, without a token. Only for what nobody else can reach.',
      ),
    tls: tls.optional(),
  })
  .prefault({})
  .describe('Where the gateway listens.')
