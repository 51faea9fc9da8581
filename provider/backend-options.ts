/** What a backend's configuration may hold, for those who write no TypeScript. */
import { checkKnown, type KnownOptions } from './known-options.ts'
import type {
  BackendConfig,
  AciBackendConfig,
  DockerBackendConfig,
  E2bBackendConfig,
  FlyMachinesBackendConfig,
  PassthroughBackendConfig,
  ProcessBackendConfig,
  RunscBackendConfig,
  SelfHostedBackendConfig,
} from './provider-options.ts'

const PROCESS: KnownOptions<ProcessBackendConfig> = {
  tier: true,
  engine: true,
  mounts: true,
  workingFolder: true,
  bubblewrapPath: true,
}
const PASSTHROUGH: KnownOptions<PassthroughBackendConfig> = { tier: true, workingFolder: true, unsafeUnenforced: true }
const DOCKER: KnownOptions<DockerBackendConfig> = {
  tier: true,
  runtime: true,
  image: true,
  engine: true,
  network: true,
  layout: true,
  user: true,
  cpus: true,
  memoryLimitMb: true,
  maxProcesses: true,
  memoryFolderMb: true,
  nodePath: true,
  startTimeoutMs: true,
}
const RUNSC: KnownOptions<RunscBackendConfig> = {
  tier: true,
  runtime: true,
  image: true,
  engine: true,
  network: true,
  layout: true,
  user: true,
  cpus: true,
  memoryLimitMb: true,
  maxProcesses: true,
  memoryFolderMb: true,
  nodePath: true,
  startTimeoutMs: true,
  runtimeName: true,
}
const ACI: KnownOptions<AciBackendConfig> = {
  tier: true,
  runtime: true,
  subscriptionId: true,
  resourceGroup: true,
  location: true,
  pool: true,
  group: true,
  getArmToken: true,
  credential: true,
  layout: true,
  namePrefix: true,
  tagging: true,
  directTargets: true,
  unsafePublicAddress: true,
  workerPort: true,
  armEndpoint: true,
  armScope: true,
  apiVersion: true,
  poolApiVersion: true,
  createTimeoutMs: true,
  workerTimeoutMs: true,
  removeTimeoutMs: true,
  pollMs: true,
}
const SELF_HOSTED: KnownOptions<SelfHostedBackendConfig> = {
  tier: true,
  service: true,
  engine: true,
  kernelImage: true,
  initrdImage: true,
  rootfsImage: true,
  firecrackerBinary: true,
  jailerBinary: true,
  unsafeNoJailer: true,
  chrootBaseDir: true,
  kvmDevice: true,
  qemuBinary: true,
  vsockBinary: true,
  uids: true,
  network: true,
  snapshot: true,
  pool: true,
  cpus: true,
  memoryLimitMb: true,
  maxProcesses: true,
  rateLimits: true,
  startTimeoutMs: true,
}
const FLY_MACHINES: KnownOptions<FlyMachinesBackendConfig> = {
  tier: true,
  service: true,
  apiToken: true,
  app: true,
  image: true,
  region: true,
  apiUrl: true,
  cpuKind: true,
  cpus: true,
  memoryLimitMb: true,
  maxProcesses: true,
  networkPolicy: true,
  directTargets: true,
  startTimeoutMs: true,
  watchMs: true,
}
const E2B: KnownOptions<E2bBackendConfig> = {
  tier: true,
  service: true,
  apiKey: true,
  template: true,
  domain: true,
  apiUrl: true,
  sandboxUrl: true,
  egress: true,
  leaseMs: true,
  directTargets: true,
  unsafeTokenInClear: true,
  unsafePrivateGateway: true,
}

/** @throws TypeError for an option that the backend has not. The tier, and what chooses below it, were looked at. */
export function checkBackendConfig(config: BackendConfig): void {
  if (config.tier === 'process') checkKnown('the backend `process`', config, PROCESS)
  else if (config.tier === 'passthrough') checkKnown('the backend `passthrough`', config, PASSTHROUGH)
  else if (config.tier === 'microvm') {
    if (config.service === 'e2b') checkKnown('the backend `e2b`', config, E2B)
    else if (config.service === 'fly-machines') checkKnown('the backend `fly-machines`', config, FLY_MACHINES)
    else checkKnown('the backend `self-hosted`', config, SELF_HOSTED)
  } else if (config.runtime === 'docker') checkKnown('the backend `docker`', config, DOCKER)
  else if (config.runtime === 'runsc') checkKnown('the backend `runsc`', config, RUNSC)
  else checkKnown('the backend `aci-standby-pool`', config, ACI)
}
