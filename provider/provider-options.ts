/** What a provider is made with: which backend, which gateway, which policy. */
import type { EgressPolicy } from '../policies/index.ts'
import type { Gateway } from '../proxy/index.ts'
import type { Backend } from './backend.ts'
import type { AciBackendOptions } from './backends/aci-standby-pool.ts'
import type { DockerBackendOptions } from './backends/docker.ts'
import type { E2bBackendOptions } from './backends/e2b.ts'
import type { FlyMachinesBackendOptions } from './backends/fly-machines.ts'
import type { PassthroughBackendOptions } from './backends/passthrough.ts'
import type { ProcessBackendOptions } from './backends/process.ts'
import type { RunscBackendOptions } from './backends/runsc.ts'
import type { SelfHostedBackendOptions } from './backends/self-hosted.ts'
import type { ControlledGateway } from './egress/controlled.ts'
import type { EmbeddedGatewayOptions } from './egress/embedded.ts'
import type { RemoteGateway } from './egress/remote.ts'

/** Processes of this machine behind bubblewrap (Linux) or Seatbelt (macOS). */
export interface ProcessBackendConfig extends Omit<ProcessBackendOptions, 'runtimeRoot'> {
  readonly tier: 'process'
}

/** Containers of a Docker engine. */
export interface DockerBackendConfig extends DockerBackendOptions {
  readonly tier: 'container'
  readonly runtime: 'docker'
}

/** Containers under gVisor. */
export interface RunscBackendConfig extends RunscBackendOptions {
  readonly tier: 'container'
  readonly runtime: 'runsc'
}

/** Container groups of Azure, claimed from a standby pool or made cold. */
export interface AciBackendConfig extends AciBackendOptions {
  readonly tier: 'container'
  readonly runtime: 'aci-standby-pool'
}

/** MicroVMs of this machine: Firecracker with KVM, or QEMU. */
export interface SelfHostedBackendConfig extends Omit<SelfHostedBackendOptions, 'runtimeRoot'> {
  readonly tier: 'microvm'
  readonly service: 'self-hosted'
}

/** Machines of Fly: microVMs elsewhere. */
export interface FlyMachinesBackendConfig extends FlyMachinesBackendOptions {
  readonly tier: 'microvm'
  readonly service: 'fly-machines'
}

/** Machines of E2B: microVMs elsewhere. */
export interface E2bBackendConfig extends E2bBackendOptions {
  readonly tier: 'microvm'
  readonly service: 'e2b'
}

/** Plain processes with nothing around them: nothing is enforced, and commands that want to can go round the gateway. */
export interface PassthroughBackendConfig extends Omit<PassthroughBackendOptions, 'runtimeRoot'> {
  readonly tier: 'passthrough'
  /** Takes policies all the same, as a wish; false by default: then any policy but `allow-all` is refused. */
  readonly unsafeUnenforced?: boolean
}

/** Every backend of this version. */
export type BackendConfig =
  | ProcessBackendConfig
  | DockerBackendConfig
  | RunscBackendConfig
  | SelfHostedBackendConfig
  | PassthroughBackendConfig
  | FlyMachinesBackendConfig
  | AciBackendConfig
  | E2bBackendConfig

/** Options of `createSandboxProvider`. */
export interface SandboxProviderOptions {
  /** One of ours by its configuration, or one of your own. */
  readonly backend: BackendConfig | Backend
  /** Policy of sandboxes that are made without one; `deny-all` by default. */
  readonly defaultEgress?: EgressPolicy
  /**
   * Who decides. By default, or with options for it, a gateway inside this process, which starts with the first sandbox and ends with the provider; or a
   * gateway of your own in this process, one in another process by its control API (`{ admin, token }`), or one elsewhere that trusts your key.
   */
  readonly gateway?: EmbeddedGatewayOptions | Gateway | ControlledGateway | RemoteGateway
  /**
   * How many sandboxes wait for the next `create()`, from the first on; none by default, 32 at most. They are nobody's and have no way out until they are
   * taken; one that is asked for with a limit is started anew. Backends `process` and `passthrough`.
   */
  readonly spares?: number
  /** Folder for what the host keeps of sandboxes; `$XDG_RUNTIME_DIR/sallyport` or `/tmp/sallyport-UID` by default. Providers of one user share it. */
  readonly runtimeRoot?: string
}
