/** A provider over the stand-in platform, with a gateway that its machines reach. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { type ReachableGateway, startReachableGateway } from '../../../provider/conformance/reachable-gateway.ts'
import { createSandboxProvider, type FlyMachinesBackendConfig, type SandboxProvider } from '../../../provider/index.ts'
import { openHostAddress } from '../elsewhere/guest.ts'
import { IMAGE } from './machine-guest.ts'
import { type FlyServer, startFlyServer } from './machines-server.ts'

export interface FlyBench {
  readonly server: FlyServer
  readonly gateway: ReachableGateway
  readonly runtimeRoot: string
  /** Another one; they end with the bench. */
  readonly provider: (more?: Partial<FlyMachinesBackendConfig>) => SandboxProvider
  readonly close: () => Promise<void>
}

export async function openFlyBench(settings: Parameters<typeof startFlyServer>[0] = {}): Promise<FlyBench> {
  const server = await startFlyServer(settings)
  const host = await openHostAddress(6)
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spq-'))
  const gateway = await startReachableGateway(host.address, {
    config: { log: { level: 'silent' } },
    machineSets: { sets: { npm: [], apt: [] }, notes: [] },
    parentFolder: folder,
  })
  const providers: SandboxProvider[] = []
  const runtimeRoot = path.join(folder, 'r')
  return {
    server,
    gateway,
    runtimeRoot,
    provider: (more = {}) => {
      const provider = createSandboxProvider({
        backend: {
          tier: 'microvm',
          service: 'fly-machines',
          apiToken: server.apiToken,
          app: server.app,
          image: IMAGE,
          apiUrl: server.url,
          watchMs: 500,
          ...more,
        },
        runtimeRoot,
        gateway: gateway.remote,
      })
      providers.push(provider)
      return provider
    },
    close: async () => {
      for (const provider of providers) await provider[Symbol.asyncDispose]()
      await gateway.close()
      await server.close()
      await host.close()
      fs.rmSync(folder, { recursive: true })
    },
  }
}
