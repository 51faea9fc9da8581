/** The promises of a sandbox, as checks that any backend, ours or a stranger's, runs: `sallyport/provider/conformance`. Needs no test runner. */
import type { ConformanceArea } from './check.ts'
import { crash } from './crash.ts'
import { egress } from './egress.ts'
import { exec } from './exec.ts'
import { files } from './files.ts'
import { lifecycle } from './lifecycle.ts'

export { type Bench, openBench } from './bench.ts'
export type { ConformanceArea, ConformanceCheck, ConformanceSubject } from './check.ts'

/** Every promise, in areas. Checks of a bench run one after another; what one leaves behind in the shared sandbox is its own fault. */
export const conformanceAreas: readonly ConformanceArea[] = [lifecycle, exec, files, egress, crash]
