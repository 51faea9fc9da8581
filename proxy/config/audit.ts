/** The `audit` section: the log itself, where its lines are sent, how long its files are kept, and what raises an alert. */
import { z } from 'zod'
import { auditSinks } from './audit-sinks.ts'
import { bytes, checkUrl, complain, seconds } from './values.ts'

const DAY_SECONDS = 86_400

const canaryHost = z
  .string()
  .regex(/^(?:\*\.)?[a-z0-9._:[\]-]{1,253}$/, {
    error: 'expected a host in canonical form, in lower case, or `*.` and one for every name below it',
  })
  .max(255)

const threshold = (most: number) => z.int().min(1).max(most)

const alerts = z
  .strictObject({
    webhook: z
      .strictObject({
        url: z.string().min(1).describe('Where alerts are posted, `https:` (`http:` only to this machine).'),
        secretFile: z
          .string()
          .min(1)
          .describe('File with the secret that signs them: `whsec_` and base64, or any 32 characters.'),
        timeoutSeconds: seconds(0.1, 300).prefault(10).describe('For the whole exchange.'),
      })
      .superRefine((webhook, context) => {
        const fault = checkUrl(webhook.url, false)
        if (fault !== undefined) complain(context, fault.message, fault.hint, ['url'])
      })
      .optional()
      .describe('Absent: no alerts.'),
    challenges: threshold(100_000)
      .default(20)
      .describe('So many bare challenges of one client address in ten minutes, without one token that is accepted.'),
    refusals: threshold(1_000_000)
      .default(100)
      .describe('So many refusals of one sandbox (or of one client address without a token) in a minute.'),
    canaryHosts: z
      .array(canaryHost)
      .max(1000)
      .default([])
      .describe(
        'Hosts that nobody has a reason to ask for: one request raises an alert, whether it is let out or not.',
      ),
    verifySeconds: seconds(60, 30 * DAY_SECONDS)
      .prefault('1h')
      .describe(
        'How often the files are verified, in a thread of its own; a chain that does not hold raises an alert.',
      ),
  })
  .prefault({})
  .describe('What is told at once, by a signed webhook.')

const retention = z
  .strictObject({
    maxAgeSeconds: seconds(60, 10 * 366 * DAY_SECONDS)
      .optional()
      .describe('Closed files whose last line is older are removed. Absent: none for its age.'),
    maxBytes: bytes(8192)
      .optional()
      .describe("The oldest closed files are removed while this gateway's have more. Absent: none for its size."),
    maxSinkLagBytes: bytes(8192)
      .prefault('10GiB')
      .describe(
        'A file that a sink has not taken yet is kept until this much follows it. Then it goes all the same, and the sink counts what it missed.',
      ),
  })
  .prefault({})
  .describe('When files are removed; by default never. Each removal is written down, signed, before it happens.')

/** `audit` of the configuration file. */
export const auditSection = z
  .strictObject({
    path: z.string().min(1).optional().describe('Folder of the audit files. Absent: `audit` in the state folder.'),
    onFailure: z
      .enum(['deny', 'allow'])
      .default('deny')
      .describe(
        'When a line can not be written: `deny` refuses new tunnels until it can; `allow` lets them out all the same. Lines are kept (up to 4,096) and written when they can be; what is lost is counted in a `gap` line.',
      ),
    sync: z
      .enum(['each', 'interval', 'os'])
      .default('interval')
      .describe(
        'When lines are brought to the disk (`fdatasync`), so that a loss of power can not take them: `each`, before the answer that they are about; `interval`, within a second, and no answer waits; `os`, when the system does, and at checkpoints.',
      ),
    maxFileBytes: bytes(4096).prefault('64MiB').describe('Size after which a new file begins.'),
    instance: z
      .string()
      .regex(/^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$/, {
        error:
          'expected 64 letters, digits, dots, hyphens and underscores at most, with a letter or digit at both ends',
      })
      .optional()
      .describe('Name of this gateway in audit lines and file names. Absent: the host name.'),
    sinks: auditSinks,
    retention,
    alerts,
  })
  .prefault({})
  .describe('The audit log: one JSON object a line, chained and signed.')
