/** The format of case documents: what a team writes to test its policies. */
import { z } from 'zod'

const common = { name: z.string(), note: z.string().optional() }
const targetSchema = z.strictObject({ host: z.string(), port: z.number() })
const where = z.enum(['file', 'token']).optional()
const ports = z
  .array(z.tuple([z.number(), z.number()]))
  .nullable()
  .optional()
const oneOrSeveral = z.union([z.string(), z.array(z.string())]).optional()
/** A missing layer is one that nobody set. */
export const layersSchema = z.strictObject({
  ceiling: z.unknown().optional(),
  deniedHosts: z.array(z.string()).optional(),
  tenant: z.unknown().optional(),
  claim: z.unknown().optional(),
})
const networkSchema = {
  allowPrivate: z.array(z.string()).optional(),
  nat64Prefixes: z.array(z.string()).optional(),
}
/** `{ about?, layers?, allowPrivate?, nat64Prefixes?, cases: […] }` */
export const documentSchema = z.looseObject({
  ...networkSchema,
  layers: layersSchema.optional(),
  cases: z.array(z.unknown()),
})

/** How an entry loads. */
export const loadedSchema = z.strictObject({
  ...common,
  where,
  entry: z.string(),
  kind: z.string(),
  canonical: z.string(),
  ports,
})
/** That an entry is refused. */
export const refusedSchema = z.strictObject({
  ...common,
  where,
  entry: z.string(),
  refused: z.string(),
  hint: z.string().optional(),
})
/** What entries match. */
export const matchSchema = z.strictObject({
  ...common,
  where,
  entry: z.string().optional(),
  entries: z.array(z.string()).optional(),
  target: targetSchema,
  match: z.boolean(),
})
/** What is decided. */
export const decisionSchema = z.strictObject({
  ...common,
  ...networkSchema,
  layers: layersSchema.optional(),
  target: targetSchema,
  addresses: z.array(z.string()).optional(),
  expect: z.strictObject({
    decision: z.enum(['allow', 'deny']).optional(),
    effective: z.enum(['allow', 'deny']).optional(),
    reason: oneOrSeveral,
    layer: oneOrSeveral,
    rule: oneOrSeveral,
  }),
})
/** Any of the four. */
export const caseSchema = z.union([loadedSchema, refusedSchema, matchSchema, decisionSchema])
