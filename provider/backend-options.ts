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
const RUNSC: KnownOptions<RunscBackendConfig> = { ...DOCKER, runtimeName: true }
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

const BACKENDS = {
  process: PROCESS,
  passthrough: PASSTHROUGH,
  docker: DOCKER,
  runsc: RUNSC,
  'aci-standby-pool': ACI,
  'self-hosted': SELF_HOSTED,
  e2b: E2B,
  'fly-machines': FLY_MACHINES,
} as const

const TIERS = ['process', 'container', 'microvm', 'passthrough'] as const
/** Below a tier, where it has several. */
const RUNTIMES = ['docker', 'runsc', 'aci-standby-pool'] as const
const SERVICES = ['self-hosted', 'e2b', 'fly-machines'] as const

/** @throws TypeError for a backend that there is not, and for an option that it has not */
export function checkBackendConfig(config: BackendConfig): void {
  const name = nameOf(config)
  checkKnown(`the backend \`${name}\``, config, BACKENDS[name])
}

function nameOf(config: BackendConfig): keyof typeof BACKENDS {
  oneOf(TIERS, config.tier, 'tier of sandboxes')
  if (config.tier === 'container') return oneOf(RUNTIMES, config.runtime, 'runtime of containers')
  if (config.tier === 'microvm') return oneOf(SERVICES, config.service, 'service of microVMs')
  return config.tier
}

function oneOf<T extends string>(names: readonly T[], given: T, what: string): T {
  if (names.includes(given)) return given
  const listed = names.map((name) => `\`${name}\``)
  throw new TypeError(`\`${given}\` is no ${what}: ${listed.slice(0, -1).join(', ')} or ${listed.at(-1) ?? ''}`)
}
