/** How sandboxes on Fly are made: what the caller says, checked. */
import net from 'node:net'
import type { InsideAddress } from '../../backend.ts'

/** Where machines are made, of what, and how large. */
export interface FlyMachinesOptions {
  /** Of one app, as `fly tokens create deploy` makes it. */
  readonly apiToken: string
  /** The app of the sandboxes: theirs alone, in a private network of its own. */
  readonly app: string
  /** As `deploy/fly` builds it. */
  readonly image: string
  /** Three letters; the platform's choice by default. */
  readonly region?: string
  /** `https://api.machines.dev` by default; `http://_api.internal:4280` from inside the private network. */
  readonly apiUrl?: string
  /** `shared` by default. */
  readonly cpuKind?: 'shared' | 'performance'
  /** 1 by default. */
  readonly cpus?: number
  /** Of a machine, in steps of 256; 512 by default. */
  readonly memoryLimitMb?: number
  /** Of the sandbox; 1024 by default. */
  readonly maxProcesses?: number
  /** `create`: makes the app's network policy where it has none. `verify`: refuses then. A policy that allows more than it must is refused in either case. */
  readonly networkPolicy?: 'create' | 'verify'
  /** What a direct connection must not reach, each an address that answers whoever is not stopped. By default public name servers, and that of the private network. */
  readonly directTargets?: readonly InsideAddress[]
  /** From the request to the worker's answer; 180 000 by default: an image may have to be fetched. */
  readonly startTimeoutMs?: number
  /** Milliseconds between two looks at which machines have ended; 5 000 by default. */
  readonly watchMs?: number
}

/** With what holds by default. */
export type ResolvedFlyOptions = Required<Omit<FlyMachinesOptions, 'region'>> & Pick<FlyMachinesOptions, 'region'>

const DEFAULT_TARGETS: readonly InsideAddress[] = [
  { host: '1.1.1.1', port: 443 },
  { host: '2606:4700:4700::1111', port: 443 },
  // The name server of every private network.
  { host: 'fdaa::3', port: 53 },
]
const MEMORY_STEP_MB = 256
const MAX_MEMORY_MB = 128 * 1024

/** @throws TypeError for a caller's mistake, without the token */
export function resolveFlyOptions(given: FlyMachinesOptions): ResolvedFlyOptions {
  const options = {
    apiUrl: 'https://api.machines.dev',
    cpuKind: 'shared' as const,
    cpus: 1,
    memoryLimitMb: 512,
    maxProcesses: 1024,
    networkPolicy: 'create' as const,
    directTargets: DEFAULT_TARGETS,
    startTimeoutMs: 180_000,
    watchMs: 5_000,
    ...given,
  }
  const { apiToken, app, image, region, cpuKind, cpus, networkPolicy, directTargets } = options
  if (typeof apiToken !== 'string' || !/^[\x21-\x7e]+( [\x21-\x7e]+)?$/.test(apiToken))
    throw new TypeError('`apiToken` is not a token of Fly: `fly tokens create deploy --app APP` makes one')
  if (typeof app !== 'string' || !/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(app))
    throw new TypeError('`app` is not the name of an app: `a-z`, `0-9` and `-`')
  if (typeof image !== 'string' || !/^[a-z0-9][\x21-\x7e]{0,500}$/i.test(image))
    throw new TypeError('`image` is not the name of an image, as `registry.fly.io/APP:TAG`')
  if (region !== undefined && !/^[a-z]{3}$/.test(region)) throw new TypeError('`region` is three letters, as `fra`')
  if (!['shared', 'performance'].includes(cpuKind)) throw new TypeError('`cpuKind` is `shared` or `performance`')
  if (!Number.isSafeInteger(cpus) || cpus < 1 || cpus > 64) throw new TypeError('`cpus` is a whole number from 1 to 64')
  if (!['create', 'verify'].includes(networkPolicy)) throw new TypeError('`networkPolicy` is `create` or `verify`')
  for (const name of ['startTimeoutMs', 'watchMs'] as const)
    if (!Number.isSafeInteger(options[name]) || options[name] < 1 || options[name] > 3_600_000)
      throw new TypeError(`\`${name}\` is a number of milliseconds, an hour at most`)
  if (directTargets.length === 0 || directTargets.length > 16) throw new TypeError('`directTargets` are 1 to 16')
  for (const { host, port } of directTargets)
    if (net.isIP(host) === 0 || !Number.isSafeInteger(port) || port < 1 || port > 65_535)
      throw new TypeError('each of `directTargets` is the literal of an address and a port')
  checkFlyLimits(options)
  return options
}

/** @throws TypeError for a limit that machines can't have */
export function checkFlyLimits({
  memoryLimitMb,
  maxProcesses,
}: Pick<ResolvedFlyOptions, 'memoryLimitMb' | 'maxProcesses'>): void {
  if (
    !Number.isSafeInteger(memoryLimitMb) ||
    memoryLimitMb % MEMORY_STEP_MB !== 0 ||
    memoryLimitMb < MEMORY_STEP_MB ||
    memoryLimitMb > MAX_MEMORY_MB
  )
    // prettier-ignore
    throw new TypeError(`\`memoryLimitMb\` of a machine on Fly is a multiple of ${MEMORY_STEP_MB}, ${MAX_MEMORY_MB} at most`)
  if (!Number.isSafeInteger(maxProcesses) || maxProcesses < 16 || maxProcesses > 100_000)
    throw new TypeError('`maxProcesses` of a machine on Fly is a whole number from 16 to 100000')
}
