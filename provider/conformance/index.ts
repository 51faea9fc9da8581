/** The promises of a sandbox, as checks that any backend, ours or a stranger's, runs: `sallyport/provider/conformance`. */
import type { ConformanceCheck } from './check.ts'

export type { ConformanceCheck, ConformanceSubject } from './check.ts'

/** Every promise. */
export const conformanceChecks: readonly ConformanceCheck[] = []
