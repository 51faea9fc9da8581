/**
 * The whole suite at E2B itself, by both ways of holding a machine to the gateway. Run with `SALLYPORT_LIVE_E2B_KEY`, and `SALLYPORT_LIVE_GATEWAY_ADDRESS`: a
 * public IPv4 address of this machine, on which the gateway of the checks listens on a port that E2B reaches. `SALLYPORT_LIVE_E2B_TEMPLATE` names another
 * template than E2B's `base`; it has Node. `SALLYPORT_LIVE_E2B_EGRESS` names one way alone; the SOCKS5 proxy takes a team that may name one, and root here.
 */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { describe } from 'vitest'
import { createE2bApi } from '../../provider/backends/e2b/e2b-api.ts'
import { resolveE2bOptions } from '../../provider/backends/e2b/e2b-options.ts'
import { labelsOfOne } from '../../provider/backends/e2b/machine-labels.ts'
import { compileProbe } from '../provider/compile-probe.ts'
import { runConformance } from '../provider/conformance/run-conformance.ts'

const {
  SALLYPORT_LIVE_E2B_KEY: apiKey,
  SALLYPORT_LIVE_GATEWAY_ADDRESS: gatewayAddress,
  SALLYPORT_LIVE_E2B_TEMPLATE: template = 'base',
  SALLYPORT_LIVE_E2B_EGRESS: only,
} = process.env

if (apiKey === undefined || gatewayAddress === undefined) {
  const reason = 'SALLYPORT_LIVE_E2B_KEY and SALLYPORT_LIVE_GATEWAY_ADDRESS are not set'
  console.log(`skipped: E2B itself: ${reason}`)
  describe.skip(`E2B itself (${reason})`, () => undefined)
} else {
  const ways = (['gateway-address', 'socks5-proxy'] as const).filter((way) => only === undefined || way === only)
  describe.each(ways)('E2B itself, by `%s`', (egress) => {
    runConformance(
      () => {
        const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
        const api = createE2bApi(resolveE2bOptions({ apiKey, template }))
        return {
          // The gateway of the checks has no certificate, and its tokens are of an issuer that ends with the checks.
          config: { tier: 'microvm', service: 'e2b', apiKey, template, egress, unsafeTokenInClear: true },
          node: ['node'],
          probe: compileProbe(folder, ['-static']),
          gatewayAddress,
          transparentEgress: egress === 'socks5-proxy',
          leftovers: async (id) => (await api.list(labelsOfOne(id))).map(({ machineId }) => `machine ${machineId}`),
          done: () => {
            fs.rmSync(folder, { recursive: true })
            return Promise.resolve()
          },
        }
      },
      { checkTimeoutMs: 600_000 },
    )
  })
}
