/** E2B is stood in for by a server that holds each request, and each reply of its own, to its contracts; what runs in its machines runs in sandboxes of this machine. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { INSIDE } from '../../../provider/backends/inside.ts'
import { compileProbe } from '../compile-probe.ts'
import { NO_CONTRACTS } from '../e2b/contract.ts'
import { startE2bServer } from '../e2b/contract-server.ts'
import { bootGuest } from '../e2b/machines.ts'
import { openHostAddress } from '../elsewhere/guest.ts'
import { describeNeeding } from '../needs.ts'
import { runConformance } from './run-conformance.ts'

if (NO_CONTRACTS !== undefined) console.log(NO_CONTRACTS)

describeNeeding(
  ['root', 'bubblewrap', 'nftables', 'namespaces', 'gcc'],
  'the backend for E2B keeps its promises',
  () => {
    runConformance(async () => {
      const host = await openHostAddress(4)
      const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
      const apiKey = 'e2b_0123456789abcdef0123456789abcdef01234567'
      const server = await startE2bServer({ apiKey, boot: bootGuest })
      return {
        config: {
          tier: 'microvm',
          service: 'e2b',
          apiKey,
          apiUrl: server.apiUrl,
          sandboxUrl: server.sandboxUrl,
          unsafeTokenInClear: true,
          unsafePrivateGateway: true,
        },
        node: [INSIDE.node],
        probe: compileProbe(folder),
        gatewayAddress: host.address,
        leftovers: (id) =>
        Promise.resolve(server.running().flatMap(({ metadata }) => (metadata['sallyport-sandbox'] === id ? [`machine of ${id}`] : []))), // prettier-ignore
        done: async () => {
          const left = server.running().map(({ id }) => `machine ${id}`)
          await server.close()
          await host.close()
          fs.rmSync(folder, { recursive: true })
          const faults = [...server.faults, ...left]
          if (faults.length > 0)
            throw new Error(`what the contracts do not know, or what is left: ${faults.join('; ')}`)
        },
      }
    })
  },
)
