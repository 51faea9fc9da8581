/** The `listen` section: where clients and operators reach the gateway. */
import { z } from 'zod'
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
        'Where clients connect: `address:port` or `unix:/path`, or a list of them. HTTP and SOCKS5 share it. `off` is for programs that embed the gateway and bind a listener for each sandbox.',
      ),
    admin: z
      .union([z.literal('off').transform(() => undefined), listenAddress()], {
        error: 'expected `address:port` such as `127.0.0.1:9090`, `unix:/path`, or `off`',
      })
      .prefault('127.0.0.1:9090')
      .describe(
        'Health, metrics and the public keys: `address:port`, `unix:/path` or `off`. Never on the port of the proxy. It asks for no credentials, so keep it on loopback or on a network of your own.',
      ),
    tls: tls.optional(),
  })
  .prefault({})
  .describe('Where the gateway listens.')
