/** A provider for E2B on what stands for its platform, with machines that are processes of this very host: for tests that need no wall. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { createSandboxProvider, type E2bBackendConfig, type SandboxProvider } from '../../../provider/index.ts'
import type { RemoteGateway } from '../../../provider/index.ts'
import { startReachableGateway } from '../../../provider/conformance/reachable-gateway.ts'
import { type E2bServer, type E2bServerOptions, startE2bServer } from './contract-server.ts'
import { bootHere } from './machines.ts'

/** In no error, log, list, record or machine. */
export const MARKER_KEY = 'e2b_marker5ecret0f0f0f0f0f0f0f0f0f0f0f0f0f0f'

export interface E2bBench {
  readonly server: E2bServer
  readonly runtimeRoot: string
  readonly remote: RemoteGateway
  readonly provider: (config?: Partial<E2bBackendConfig>, gateway?: RemoteGateway) => SandboxProvider
  readonly close: () => Promise<void>
}

/** Nobody listens there: what is stopped is refused at once. */
const CLOSED = [{ host: '127.0.0.1', port: 1 }]

/** Starts platform and gateway. */
export async function openE2bBench(options: Partial<E2bServerOptions> = {}): Promise<E2bBench> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sp2-'))
  const runtimeRoot = path.join(folder, 'r')
  const server = await startE2bServer({ apiKey: MARKER_KEY, boot: bootHere, ...options })
  const gateway = await startReachableGateway('127.0.0.1', {
    config: { log: { level: 'silent' } },
    machineSets: { sets: { npm: [], apt: [] }, notes: [] },
  })
  const providers: SandboxProvider[] = []
  return {
    server,
    runtimeRoot,
    remote: gateway.remote,
    provider: (config = {}, remote = gateway.remote) => {
      const provider = createSandboxProvider({
        backend: { tier: 'microvm', service: 'e2b', apiKey: MARKER_KEY, apiUrl: server.apiUrl, sandboxUrl: server.sandboxUrl, directTargets: CLOSED, unsafeTokenInClear: true, unsafePrivateGateway: true, ...config }, // prettier-ignore
        gateway: remote,
        runtimeRoot,
      })
      providers.push(provider)
      return provider
    },
    close: async () => {
      await Promise.all(providers.map((provider) => provider[Symbol.asyncDispose]()))
      await server.close()
      await gateway.close()
      fs.rmSync(folder, { recursive: true, force: true })
    },
  }
}
