/** Sandboxes whose only way out is the gateway: `sallyport`. What is exported here is what programs may depend on. */
export type { Backend, InsideAddress, StartedSandbox, StartRequest } from './backend.ts'
export type { AciColdGroup, AciPool } from './backends/aci/aci-options.ts'
export { type ArmTokenOptions, type AzureCredential, createArmTokenSource } from './backends/aci/arm-token.ts'
export { readStandbyPool, registerStandbyPoolMetrics, type StandbyPoolHealth } from './backends/aci/pool-health.ts'
export type {
  ContainerSandboxLayout,
  ContainerSandboxMount,
  ContainerSandboxMountSource,
} from './backends/container-layout.ts'
export type { ContainerOptions, DockerConnection } from './backends/container-options.ts'
export { DockerError, type DockerFault } from './backends/docker-error.ts'
export { MicrovmError, type MicrovmFault } from './backends/microvm/microvm-error.ts'
export { PlatformError, type PlatformFault } from './backends/platform/platform-error.ts'
export { createSandboxProvider } from './create-provider.ts'
export type { ControlledGateway } from './egress/controlled.ts'
export type { EmbeddedGatewayOptions } from './egress/embedded.ts'
export type { RemoteGateway } from './egress/remote.ts'
export { PROBE_DESTINATION } from './probe.ts'
export type {
  AciBackendConfig,
  BackendConfig,
  DockerBackendConfig,
  E2bBackendConfig,
  FlyMachinesBackendConfig,
  PassthroughBackendConfig,
  ProcessBackendConfig,
  RunscBackendConfig,
  SandboxProviderOptions,
  SelfHostedBackendConfig,
} from './provider-options.ts'
export type {
  CreateSandboxOptions,
  Sandbox,
  SandboxCapabilities,
  SandboxEnvironment,
  SandboxExecOptions,
  SandboxExecResult,
  SandboxFileEntry,
  SandboxFileStat,
  SandboxInfo,
  SandboxOutput,
  SandboxProcess,
  SandboxProvider,
  SandboxStatus,
} from './sandbox.ts'
export { SandboxError, type SandboxErrorCode } from './sandbox-error.ts'
export { WorkerFault } from './worker-client.ts'
export type { EgressPolicy } from '../policies/index.ts'
export { SallyportError, type ErrorCode } from '../policies/index.ts'
