/** Fly is stood in for by a server that holds each request to the description of its API; what runs in its machines is what deploy/fly puts into them. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { findLimitSupport } from '../../../provider/backends/limits.ts'
import { conformanceAreas } from '../../../provider/conformance/index.ts'
import { compileProbe } from '../compile-probe.ts'
import { openHostAddress } from '../elsewhere/guest.ts'
import { IMAGE } from '../fly/machine-guest.ts'
import { NO_DESCRIPTION, startFlyServer } from '../fly/machines-server.ts'
import { describeNeeding } from '../needs.ts'
import { runConformance } from './run-conformance.ts'

if (NO_DESCRIPTION !== undefined) console.log(NO_DESCRIPTION)
/** A machine of Fly has its memory and no more; what stands for one here needs a control group for that. */
const OF_MEMORY = 'memory beyond the limit is not to be had, and the sandbox lives on where it says so'
const isHeld = findLimitSupport().memory
if (!isHeld) console.log(`skipped: ${OF_MEMORY}: no control group is writable here`)
const chosen = isHeld ? undefined : conformanceAreas.flatMap(({ checks }) => checks.map(({ name }) => name)).filter((name) => name !== OF_MEMORY) // prettier-ignore

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces', 'gcc'], 'the Fly backend keeps its promises', () => {
  runConformance(
    async () => {
      const server = await startFlyServer()
      const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
      const host = await openHostAddress(6)
      return {
        config: {
          tier: 'microvm',
          service: 'fly-machines',
          apiToken: server.apiToken,
          app: server.app,
          image: IMAGE,
          apiUrl: server.url,
          watchMs: 1_000,
        },
        node: ['/opt/sallyport/node'],
        probe: compileProbe(folder, ['-static']),
        gatewayAddress: host.address,
        leftovers: (id) =>
        Promise.resolve(server.machines().filter(({ config }) => JSON.stringify(config).includes(id)).map(({ name, state }) => `machine ${name} is ${state}`)), // prettier-ignore
        done: async () => {
          await server.close()
          await host.close()
          fs.rmSync(folder, { recursive: true })
          const faults = server.faults()
          if (faults.length > 0) throw new Error(`what the description does not know: ${faults.join('; ')}`)
        },
      }
    },
    { chosen },
  )
})
