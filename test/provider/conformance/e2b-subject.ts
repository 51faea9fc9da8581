/** What stands for E2B in the conformance suite: a server that holds each request, and each reply of its own, to the contracts; its machines are sandboxes of this machine. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { INSIDE } from '../../../provider/backends/inside.ts'
import type { E2bBackendConfig } from '../../../provider/index.ts'
import { compileProbe } from '../compile-probe.ts'
import { NO_CONTRACTS } from '../e2b/contract.ts'
import { startE2bServer } from '../e2b/contract-server.ts'
import { bootGuest } from '../e2b/machines.ts'
import { openHostAddress } from '../elsewhere/guest.ts'
import type { OwnSubject } from './run-conformance.ts'

/** What it takes. */
export const E2B_NEEDS = ['root', 'bubblewrap', 'nftables', 'namespaces', 'python3', 'gcc'] as const

if (NO_CONTRACTS !== undefined) console.log(NO_CONTRACTS)

/** Starts it; its `done` fails if anything was said that the contracts do not know. */
export async function e2bSubject(egress: NonNullable<E2bBackendConfig['egress']>): Promise<OwnSubject> {
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
      egress,
      unsafeTokenInClear: true,
      unsafePrivateGateway: true,
    },
    node: [INSIDE.node],
    probe: compileProbe(folder),
    gatewayAddress: host.address,
    transparentEgress: egress === 'socks5-proxy',
    leftovers: (id) =>
    Promise.resolve(server.running().flatMap(({ metadata }) => (metadata['sallyport-sandbox'] === id ? [`machine of ${id}`] : []))), // prettier-ignore
    done: async () => {
      const left = server.running().map(({ id }) => `machine ${id}`)
      await server.close()
      await host.close()
      fs.rmSync(folder, { recursive: true })
      const faults = [...server.faults, ...left]
      if (faults.length > 0) throw new Error(`what the contracts do not know, or what is left: ${faults.join('; ')}`)
    },
  }
}
