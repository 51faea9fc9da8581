import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { compileProbe } from '../compile-probe.ts'
import { describeNeeding } from '../needs.ts'
import { runConformance } from './run-conformance.ts'

/** What it leaves open, and says so; if the suite did not see it here, it would not see it anywhere. What sends packets beyond the machine is not tried. */
const LEFT_OPEN = [
  'no connection reaches the ports of the host',
  'no datagram and no echo reaches the host',
  'no socket can be made that a network namespace does not confine',
  'two sandboxes do not reach each other, nor each other’s channels',
  'the bearer of the worker is nowhere that a command can look',
]

describeNeeding(['gcc', 'root'], 'the passthrough backend keeps the promises that it makes, and no more', () => {
  runConformance(
    () => {
      const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
      const done = (): Promise<void> => fs.promises.rm(folder, { recursive: true })
      return {
        config: { tier: 'passthrough', unsafeUnenforced: true },
        node: [process.execPath],
        probe: compileProbe(folder),
        done,
      }
    },
    { known: LEFT_OPEN },
  )
})
