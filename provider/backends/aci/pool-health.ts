/** How full a standby pool is, for people and for metrics. */
import { Gauge, type Registry } from 'prom-client'
import { cleanText } from '../platform/clean-text.ts'
import { type AciStandbyPoolOptions, resolveAciOptions } from './aci-options.ts'
import { type Arm, createArm, poolIdOf } from './arm.ts'

/** A pool at one moment. */
export interface StandbyPoolHealth {
  /** Name of the pool. */
  readonly pool: string
  /** False while Azure calls it degraded. */
  readonly healthy: boolean
  /** What Azure says of it; empty when it is well. */
  readonly message: string
  /** Ready to be claimed. */
  readonly running: number
  readonly creating: number
  readonly deleting: number
  /** How many it is to keep ready. */
  readonly capacity: number
}

/** Asks Azure. @throws TypeError for options without a pool; PlatformError */
export async function readStandbyPool(given: AciStandbyPoolOptions): Promise<StandbyPoolHealth> {
  const options = resolveAciOptions(given)
  if (options.pool === undefined) throw new TypeError('without `pool` there is none to look at')
  const arm = createArm(options)
  try {
    return await poolHealth(arm, poolIdOf(options))
  } finally {
    arm.close()
  }
}

/** The same over connections that are there. */
export async function poolHealth(arm: Pick<Arm, 'getPool' | 'getPoolView'>, id: string): Promise<StandbyPoolHealth> {
  const [pool, { properties }] = await Promise.all([arm.getPool(), arm.getPoolView()])
  const count = (state: string): number =>
    properties.instanceCountSummary
      .flatMap(({ instanceCountsByState }) => instanceCountsByState)
      .filter((each) => each.state === state)
      .reduce((sum, each) => sum + each.count, 0)
  return {
    pool: id.slice(id.lastIndexOf('/') + 1),
    healthy: (properties.status?.code ?? 'HealthState/healthy') === 'HealthState/healthy',
    message: cleanText(properties.status?.message ?? ''),
    running: count('Running'),
    creating: count('Creating'),
    deleting: count('Deleting'),
    capacity: pool.properties.elasticityProfile.maxReadyCapacity,
  }
}

/** Azure is not asked more often, however often the metrics are read. */
const KEPT_MS = 30_000

/**
 * Adds the pool to the metrics of the program that makes sandboxes: `sallyport_standby_pool_instances{pool,state}`, `…_capacity{pool}`, `…_healthy{pool}`
 * and `…_read_ok{pool}`, which is 0 while Azure can't be asked; then the others are absent rather than old.
 * @throws TypeError for options without a pool
 */
export function registerStandbyPoolMetrics(registry: Registry, given: AciStandbyPoolOptions): void {
  const options = resolveAciOptions(given)
  if (options.pool === undefined) throw new TypeError('without `pool` there is none to look at')
  const arm = createArm(options)
  const id = poolIdOf(options)
  const pool = id.slice(id.lastIndexOf('/') + 1)
  let readMs = -Infinity
  let reading: Promise<void> | undefined
  // Of each of them, since they are collected at the same time.
  const collect = (): Promise<void> => {
    if (performance.now() - readMs > KEPT_MS) {
      readMs = performance.now()
      reading = read()
    }
    return reading ?? Promise.resolve()
  }
  const gauge = <Label extends string>(name: string, help: string, labelNames: readonly Label[]): Gauge<Label> =>
    new Gauge({ name: `sallyport_standby_pool_${name}`, help, labelNames, registers: [registry], collect })
  const instances = gauge('instances', 'Instances of the pool, by state: running ones are ready to be claimed.', ['pool', 'state']) // prettier-ignore
  const capacity = gauge('capacity', 'Instances that the pool is to keep ready.', ['pool'])
  const healthy = gauge('healthy', '1 unless Azure calls the pool degraded.', ['pool'])
  const ok = gauge('read_ok', '1 when the pool could be looked at.', ['pool'])
  const read = async (): Promise<void> => {
    try {
      const found = await poolHealth(arm, id)
      for (const state of ['running', 'creating', 'deleting'] as const) instances.set({ pool, state }, found[state])
      capacity.set({ pool }, found.capacity)
      healthy.set({ pool }, found.healthy ? 1 : 0)
      ok.set({ pool }, 1)
    } catch {
      for (const each of [instances, capacity, healthy]) each.reset()
      ok.set({ pool }, 0)
    }
  }
}
