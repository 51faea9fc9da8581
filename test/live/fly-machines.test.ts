/**
 * The whole suite on Fly. Run where the private network of the app is reached, with `SALLYPORT_LIVE_FLY_TOKEN`, `SALLYPORT_LIVE_FLY_APP`, `SALLYPORT_LIVE_FLY_IMAGE` (what deploy/fly
 * builds) and `SALLYPORT_LIVE_FLY_ADDRESS`, an address of this machine in that network, where the gateway of the checks listens.
 */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { describe } from 'vitest'
import { createMachinesApi } from '../../provider/backends/fly-machines/machines-api.ts'
import { metadataOf } from '../../provider/backends/fly-machines/machine-request.ts'
import { compileProbe } from '../provider/compile-probe.ts'
import { runConformance } from '../provider/conformance/run-conformance.ts'

const {
  SALLYPORT_LIVE_FLY_TOKEN: apiToken,
  SALLYPORT_LIVE_FLY_APP: app,
  SALLYPORT_LIVE_FLY_IMAGE: image,
  SALLYPORT_LIVE_FLY_ADDRESS: gatewayAddress,
} = process.env

if (apiToken === undefined || app === undefined || image === undefined || gatewayAddress === undefined) {
  const reason = 'SALLYPORT_LIVE_FLY_TOKEN, …_APP, …_IMAGE and …_ADDRESS are not set'
  console.log(`skipped: Fly itself: ${reason}`)
  describe.skip(`Fly itself (${reason})`, () => undefined)
} else {
  describe('Fly itself', () => {
    runConformance(
      () => {
        const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
        const api = createMachinesApi({ apiToken, app, apiUrl: 'https://api.machines.dev' })
        return {
          config: { tier: 'microvm', service: 'fly-machines', apiToken, app, image },
          node: ['/opt/sallyport/node'],
          probe: compileProbe(folder, ['-static']),
          gatewayAddress,
          leftovers: async (id) => (await api.list(metadataOf(id))).map((machine) => `machine ${machine.id} is ${machine.state}`), // prettier-ignore
          done: () => {
            api.close()
            fs.rmSync(folder, { recursive: true })
            return Promise.resolve()
          },
        }
      },
      { checkTimeoutMs: 600_000 },
    )
  })
}
