/** The shape of an audit line: one zod schema, from which the types and the published JSON Schema come. */
import { z } from 'zod'
import { ALL_REASONS, CLOSE_REASONS } from '../reasons.ts'
import { MAX_FIELD_CHARACTERS } from './escape.ts'

const text = z.string().max(MAX_FIELD_CHARACTERS)
const count = z.number().int().nonnegative()
const milliseconds = z.number().nonnegative()
const hash = z.string().regex(/^[0-9a-f]{64}$/)

const position = {
  seq: z
    .number()
    .int()
    .positive()
    .describe('Number of the line, from 1, per instance; it skips only what a `gap` line counts as lost'),
  time: z.iso.datetime({ precision: 3 }).describe('When it happened, UTC, milliseconds'),
  instance: text.describe('Name of the gateway that wrote the line'),
}

const caller = {
  request_id: text.optional().describe('The same in the reply to the client and in every line about the request'),
  tenant: text.optional(),
  sandbox: text.optional(),
  token_id: text.optional().describe('`jti` of the token, or the hash that stands for it; never the token'),
  issuer: text.optional(),
  key_id: text.optional().describe('`kid` of the key that signed the token'),
  dialect: z.enum(['connect', 'http', 'socks5']).optional(),
  requested: text.optional().describe('The target as it came, escaped to printable ASCII'),
  host: text.optional().describe('Canonical name or address'),
  port: z.number().int().min(0).max(65535).optional(),
  client: text.optional().describe('`address:port` of the client, or `unix`'),
}

const chain = {
  prev: hash.describe('SHA-256 of the line before this one, newline included, in hex; 64 zeros on the very first line'),
}
const reason = z.enum(ALL_REASONS)
const verdict = z.enum(['allow', 'deny'])
const layer = z.enum(['ceiling', 'tenant', 'claim'])

const auth = z
  .strictObject({
    ...position,
    kind: z.literal('auth'),
    ...caller,
    decision: z.literal('deny'),
    effective: z.literal('deny'),
    reason,
    ...chain,
  })
  .describe('Credentials were refused or asked for')

const decision = z
  .strictObject({
    ...position,
    kind: z.literal('decision'),
    ...caller,
    decision: verdict.describe('What policy says'),
    effective: verdict.describe('What happened'),
    reason: reason.optional(),
    layer: layer.optional(),
    rule: text.optional().describe('The policy entry that decided'),
    policy_version: text.optional(),
    resolved: z.array(text).optional().describe('Every address that the name resolved to'),
    dialled: text.optional().describe('The address that was connected'),
    dns_ms: milliseconds.optional(),
    connect_ms: milliseconds.optional(),
    ...chain,
  })
  .describe('The outcome of one request to go out')

const close = z
  .strictObject({
    ...position,
    kind: z.literal('close'),
    ...caller,
    policy_version: text.optional(),
    sni: text.optional(),
    bytes_in: count.describe('Origin to client'),
    bytes_out: count.describe('Client to origin'),
    duration_ms: milliseconds,
    close_reason: z.enum(CLOSE_REASONS),
    ...chain,
  })
  .describe('The end of what a decision line let out')

const admin = z
  .strictObject({
    ...position,
    kind: z.literal('admin'),
    ...caller,
    policy_version: text.optional(),
    action: text.describe(
      '`start`, `stop`, `segment`, `checkpoint`, `gap`, `restored`, and what operators did: `reload`, `revoke`, …',
    ),
    author: text.optional().describe('Who did it, by the name in the credentials'),
    detail: text.optional(),
    added: z
      .array(text)
      .optional()
      .describe('Of a changed policy: entries that appeared; those that deny begin with `!`; 32 are shown'),
    removed: z.array(text).optional().describe('Of a changed policy: entries that vanished'),
    lost: count.optional().describe('`gap`: how many lines were lost; `seq` skips as many'),
    segment: z
      .number()
      .int()
      .positive()
      .optional()
      .describe(
        'Number of the file; on its first line, on checkpoints, and on `retention`: of the file that is removed',
      ),
    previous: z
      .enum(['none', 'stop', 'segment', 'unclean', 'abandoned', 'missing'])
      .optional()
      .describe('First line of a file: how the one before it ended'),
    torn_bytes: count
      .optional()
      .describe('First line of a file: bytes of an unfinished line at the end of the one before it'),
    cause: z
      .enum(['start', 'lines', 'interval', 'segment', 'stop'])
      .optional()
      .describe('Why a checkpoint was written; `segment` and `stop` close the file'),
    ...chain,
    signer: text.optional().describe('RFC 7638 thumbprint of the Ed25519 key that signed the checkpoint'),
    signature: z
      .string()
      .regex(/^[A-Za-z0-9_-]{86}$/)
      .optional()
      .describe('Ed25519 over the bytes of the line before `,"signature"`, base64url'),
  })
  .describe('What an operator did, or what happened to the log itself')

/** One line of the log. */
export const auditLineSchema = z.discriminatedUnion('kind', [auth, decision, close, admin])

/** One line of the log, as read back. */
export type AuditLine = z.infer<typeof auditLineSchema>

/** What each field is. */
export function fieldTypes(): ReadonlyMap<string, 'text' | 'number' | 'list'> {
  return new Map(
    auditLineSchema.options.flatMap(({ shape }) =>
      Object.entries<z.core.$ZodType>(shape).map(([name, schema]) => [name, fieldType(schema)] as const),
    ),
  )
}

function fieldType(schema: z.core.$ZodType): 'text' | 'number' | 'list' {
  if (schema instanceof z.ZodOptional) return fieldType(schema.unwrap())
  if (schema instanceof z.ZodArray) return 'list'
  return schema instanceof z.ZodNumber ? 'number' : 'text'
}

/** The JSON Schema that ships as `schemas/audit.schema.json`. */
export function auditJsonSchema(): object {
  return {
    ...z.toJSONSchema(auditLineSchema, { target: 'draft-2020-12' }),
    title: 'One line of a Sallyport audit log',
  }
}
