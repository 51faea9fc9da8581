/** The backend that a configuration names. */
import type { Backend } from './backend.ts'
import { createProcessBackend } from './backends/process.ts'
import type { BackendConfig } from './provider-options.ts'

/** A backend, and whether its caller puts up with policies that nothing enforces. */
export interface SelectedBackend {
  readonly backend: Backend
  readonly unsafeUnenforced: boolean
}

/** @throws SandboxError of the backend; TypeError for none of them */
export function selectBackend(config: BackendConfig | Backend, runtimeRoot: string): SelectedBackend {
  if ('start' in config) return { backend: config, unsafeUnenforced: false }
  const { tier, ...options } = config
  switch (tier) {
    case 'process':
      return { backend: createProcessBackend({ ...options, runtimeRoot }), unsafeUnenforced: false }
    default:
      throw new TypeError(`\`${String(tier)}\` is no tier of sandboxes`)
  }
}
