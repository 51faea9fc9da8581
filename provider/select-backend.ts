/** The backend that a configuration names. */
import type { Backend } from './backend.ts'
import { createAciStandbyPoolBackend } from './backends/aci-standby-pool.ts'
import { createDockerBackend } from './backends/docker.ts'
import { createE2bBackend } from './backends/e2b.ts'
import { createFlyMachinesBackend } from './backends/fly-machines.ts'
import { createPassthroughBackend } from './backends/passthrough.ts'
import { createProcessBackend } from './backends/process.ts'
import { createRunscBackend } from './backends/runsc.ts'
import { createSelfHostedBackend } from './backends/self-hosted.ts'
import { checkBackendConfig } from './backend-options.ts'
import type { BackendConfig } from './provider-options.ts'

/** A backend, and whether its caller puts up with policies that nothing enforces. */
export interface SelectedBackend {
  readonly backend: Backend
  readonly unsafeUnenforced: boolean
}

/** @throws SandboxError of the backend; TypeError for none of them */
export function selectBackend(config: BackendConfig | Backend, runtimeRoot: string): SelectedBackend {
  // Whoever writes no TypeScript may say anything.
  const given: unknown = config
  if (typeof given !== 'object' || given === null)
    throw new TypeError("`backend` says how sandboxes are made, such as `{ tier: 'process' }`")
  if ('start' in config) return { backend: config, unsafeUnenforced: false }
  checkBackendConfig(config)
  if (config.tier === 'passthrough') {
    const { tier: _tier, unsafeUnenforced = false, ...options } = config
    return { backend: createPassthroughBackend({ ...options, runtimeRoot }), unsafeUnenforced }
  }
  return { backend: enforcing(config, runtimeRoot), unsafeUnenforced: false }
}

function enforcing(config: Exclude<BackendConfig, { readonly tier: 'passthrough' }>, runtimeRoot: string): Backend {
  if (config.tier === 'process') {
    const { tier: _tier, ...options } = config
    return createProcessBackend({ ...options, runtimeRoot })
  }
  if (config.tier === 'microvm') {
    if (config.service === 'fly-machines') {
      const { tier: _tier, service: _service, ...options } = config
      return createFlyMachinesBackend(options)
    }
    if (config.service === 'e2b') {
      const { tier: _tier, service: _service, ...options } = config
      return createE2bBackend(options)
    }
    const { tier: _tier, service: _service, ...options } = config
    return createSelfHostedBackend({ ...options, runtimeRoot })
  }
  if (config.runtime === 'docker') {
    const { tier: _tier, runtime: _runtime, ...options } = config
    return createDockerBackend(options)
  }
  if (config.runtime === 'aci-standby-pool') {
    const { tier: _tier, runtime: _runtime, ...options } = config
    return createAciStandbyPoolBackend(options)
  }
  const { tier: _tier, runtime: _runtime, ...options } = config
  return createRunscBackend(options)
}
