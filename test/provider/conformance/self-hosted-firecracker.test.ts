/** Firecracker is stood in for by a server that holds each request to its specification; what runs in its machines are real workers, in sandboxes of this machine. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { INSIDE } from '../../../provider/backends/inside.ts'
import { compileProbe } from '../compile-probe.ts'
import { makeStubs, NO_SPECIFICATION } from '../microvm/stubs.ts'
import { traces } from '../microvm/traces.ts'
import { describeNeeding } from '../needs.ts'
import { runConformance } from './run-conformance.ts'

if (NO_SPECIFICATION !== undefined) console.log(NO_SPECIFICATION)

describeNeeding(
  ['root', 'bubblewrap', 'gcc'],
  'the self-hosted backend keeps its promises, driving Firecracker',
  () => {
    runConformance(() => {
      const stubs = makeStubs()
      const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
      return {
        config: stubs.config,
        node: [INSIDE.node],
        probe: compileProbe(folder),
        leftovers: (id) => Promise.resolve([...traces(id), ...(fs.existsSync(stubs.jail(id)) ? [stubs.jail(id)] : [])]),
        done: async () => {
          fs.rmSync(folder, { recursive: true })
          const faults = stubs.log().flatMap((line) => line.faults ?? [])
          await stubs.remove()
          if (faults.length > 0) throw new Error(`requests that the specification does not know: ${faults.join('; ')}`)
        },
      }
    })
  },
)
