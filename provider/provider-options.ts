/** What a provider is made with: which backend, which gateway, which policy. */
import type { EgressPolicy } from '../policies/index.ts'
import type { Gateway } from '../proxy/index.ts'
import type { Backend } from './backend.ts'
import type { ProcessBackendOptions } from './backends/process.ts'
import type { EmbeddedGatewayOptions } from './egress/embedded.ts'
import type { RemoteGateway } from './egress/remote.ts'

/** Processes of this machine behind bubblewrap (Linux) or Seatbelt (macOS). */
export interface ProcessBackendConfig extends Omit<ProcessBackendOptions, 'runtimeRoot'> {
  readonly tier: 'process'
}

/** Every backend of this version. */
export type BackendConfig = ProcessBackendConfig

/** Options of `createSandboxProvider`. */
export interface SandboxProviderOptions {
  /** One of ours by its configuration, or one of your own. */
  readonly backend: BackendConfig | Backend
  /** Policy of sandboxes that are made without one; `deny-all` by default. */
  readonly defaultEgress?: EgressPolicy
  /**
   * Who decides. By default, or with options for it, a gateway inside this process, which starts with the first sandbox and ends with the provider; or a
   * gateway of your own in this process, or one elsewhere that trusts your key.
   */
  readonly gateway?: EmbeddedGatewayOptions | Gateway | RemoteGateway
  /** Folder for what the host keeps of sandboxes; `$XDG_RUNTIME_DIR/sallyport` or `/tmp/sallyport-UID` by default. Providers of one user share it. */
  readonly runtimeRoot?: string
}
