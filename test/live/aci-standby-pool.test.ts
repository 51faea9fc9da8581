/**
 * The whole suite on Azure, from a host inside the virtual network of the pool. `SALLYPORT_LIVE_ACI`: JSON of the backend's options;
 * `SALLYPORT_LIVE_ACI_GATEWAY`: an address of this host that sandboxes reach. The identity is that of `DefaultAzureCredential`.
 */
import { describe } from 'vitest'
import type { AciBackendConfig } from '../../provider/index.ts'
import { runConformance } from '../provider/conformance/run-conformance.ts'

const { SALLYPORT_LIVE_ACI: options, SALLYPORT_LIVE_ACI_GATEWAY: gatewayAddress } = process.env

if (options === undefined || gatewayAddress === undefined) {
  const reason = 'SALLYPORT_LIVE_ACI and SALLYPORT_LIVE_ACI_GATEWAY say nothing'
  console.log(`skipped: container groups of Azure: ${reason}`)
  describe.skip(`container groups of Azure (${reason})`, () => undefined)
} else {
  describe('container groups of Azure', () =>
    runConformance(
      () => ({
        config: { ...(JSON.parse(options) as Omit<AciBackendConfig, 'tier' | 'runtime'>), tier: 'container', runtime: 'aci-standby-pool' }, // prettier-ignore
        node: ['/opt/sallyport/node'],
        gatewayAddress,
      }),
      { checkTimeoutMs: 900_000 },
    ))
}
