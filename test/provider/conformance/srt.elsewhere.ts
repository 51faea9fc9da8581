/** For a process that is not root's, which the runtime refuses. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { compileProbe } from '../compile-probe.ts'
import { runConformance } from './run-conformance.ts'

runConformance(() => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
  const done = (): Promise<void> => fs.promises.rm(folder, { recursive: true })
  return {
    config: { tier: 'process', engine: 'srt' },
    node: [fs.realpathSync(process.execPath)],
    probe: compileProbe(folder),
    done,
  }
})
