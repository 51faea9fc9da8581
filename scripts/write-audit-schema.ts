/** Writes `schemas/audit.schema.json` from the zod schema; a test compares the two. */
import { writeFileSync } from 'node:fs'
import { auditJsonSchema } from '../proxy/audit/schema.ts'

writeFileSync(
  new URL('../schemas/audit.schema.json', import.meta.url),
  `${JSON.stringify(auditJsonSchema(), null, 2)}\n`,
)
