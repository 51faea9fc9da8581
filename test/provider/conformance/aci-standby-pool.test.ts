/** Azure is stood in for by a server that holds each request to Azure's descriptions; its containers are the sandbox image's own entry and worker, in machines of their own. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { startArmServer, CONTAINER, POOL, PROFILE, RESOURCE_GROUP, SUBSCRIPTION } from '../aci/arm-server.ts'
import { NO_DESCRIPTION } from '../aci/contract.ts'
import { startTokenEndpoint } from '../aci/token-endpoint.ts'
import { compileProbe } from '../compile-probe.ts'
import { openHostAddress } from '../elsewhere/guest.ts'
import { describeNeeding } from '../needs.ts'
import { runConformance } from './run-conformance.ts'

if (NO_DESCRIPTION !== undefined) console.log(NO_DESCRIPTION)

describeNeeding(
  ['root', 'bubblewrap', 'nftables', 'namespaces', 'gcc'],
  'the backend of Azure keeps its promises',
  () => {
    // prettier-ignore
    runConformance(async () => {
    const [tokens, host] = [await startTokenEndpoint(), await openHostAddress(4)]
    const azure = await startArmServer({ isKnown: (token) => tokens.given.has(token) })
    // For the package, here and in the host that is to be abandoned.
    Object.assign(process.env, tokens.environment)
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
    return {
      config: {
        tier: 'container',
        runtime: 'aci-standby-pool',
        subscriptionId: SUBSCRIPTION,
        resourceGroup: RESOURCE_GROUP,
        location: 'westeurope',
        pool: { name: POOL, profile: PROFILE, container: CONTAINER },
        credential: { kind: 'managed-identity' },
        armEndpoint: azure.url,
        // Nobody is there, and who is not stopped learns of it at once.
        directTargets: [
          { host: '192.0.2.1', port: 443 },
          { host: '198.51.100.1', port: 443 },
        ],
        pollMs: 50,
      },
      node: ['/opt/sallyport/node'],
      probe: compileProbe(folder, ['-static']),
      gatewayAddress: host.address,
      leftovers: (id) => Promise.resolve([...azure.groups.keys()].filter((name) => name.includes(id.replace('_', '-')))), // prettier-ignore
      done: async () => {
        for (const name of Object.keys(tokens.environment)) Reflect.deleteProperty(process.env, name)
        await azure.close()
        await tokens.close()
        await host.close()
        fs.rmSync(folder, { recursive: true })
        if (azure.faults.length > 0) throw new Error(`what the descriptions do not know: ${azure.faults.join('; ')}`)
      },
    }
  })
  },
)
