import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { INSIDE } from '../../../provider/backends/inside.ts'
import { compileProbe } from '../compile-probe.ts'
import { describeNeeding } from '../needs.ts'
import { runConformance } from './run-conformance.ts'

describeNeeding(['bubblewrap', 'gcc'], 'the process backend keeps its promises', () => {
  runConformance(() => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
    const done = (): Promise<void> => fs.promises.rm(folder, { recursive: true })
    return Promise.resolve({ config: { tier: 'process' }, node: [INSIDE.node], probe: compileProbe(folder), done })
  })
})
