/** What the backend may be told, what a cold group is made of, and how full a pool is. */
import { Registry } from 'prom-client'
import { afterEach, describe, expect, test } from 'vitest'
import { createAciStandbyPoolBackend } from '../../../provider/backends/aci-standby-pool.ts'
import { type AciStandbyPoolOptions, resolveAciOptions } from '../../../provider/backends/aci/aci-options.ts'
import { groupBody } from '../../../provider/backends/aci/group-body.ts'
import { readStandbyPool, registerStandbyPoolMetrics } from '../../../provider/backends/aci/pool-health.ts'
import type { ContainerSandboxLayout } from '../../../provider/index.ts'
import { contractCheck } from './contract.ts'
import { faultOf, mustHide, openSubject, type Subject } from './subject.ts'

const BASE = { subscriptionId: 's', resourceGroup: 'r', location: 'westeurope' }
const POOL = { name: 'p', profile: 'f', container: 'c' }
const SUBNET = '/subscriptions/s/resourceGroups/r/providers/Microsoft.Network/virtualNetworks/v/subnets/n'
const KEY = 'marker-storage-account-key-0011'
const share = {
  kind: 'azureFileShare',
  storageAccountName: 'account',
  shareName: 'share',
  storageAccountKey: KEY,
} as const
const layout: ContainerSandboxLayout = {
  outputs: { source: { kind: 'inImage' }, containerPath: '/work' },
  uploads: { source: share },
}
const open: Subject[] = []
afterEach(async () => {
  for (const each of open.splice(0)) await each.close()
})

describe('options', () => {
  test.each<[string, Partial<AciStandbyPoolOptions>]>([
    ['neither pool nor group', {}],
    ['both of them', { pool: POOL, group: { image: 'i', subnetId: SUBNET } }],
    ['a subscription with a slash', { subscriptionId: '../x', pool: POOL }],
    ['a resource group with a query', { resourceGroup: 'r?x', pool: POOL }],
    ['a pool with a slash', { pool: { ...POOL, name: 'a/b' } }],
    ['a container with capitals', { pool: { ...POOL, container: 'Worker' } }],
    ['a revision of 0', { pool: { ...POOL, revision: 0 } }],
    ['a prefix that no group may have', { namePrefix: 'UPPER', pool: POOL }],
    ['no targets', { directTargets: [], pool: POOL }],
    ['a target that is a name', { directTargets: [{ host: 'example.com', port: 443 }], pool: POOL }],
    ['a group with a public address', { group: { image: 'i' } }],
    ['a time of 0', { pollMs: 0, pool: POOL }],
    ['credentials over plain HTTP', { armEndpoint: 'http://management.example', pool: POOL }],
  ])('%s are a mistake of the caller’s', (_name, more) => {
    expect(() => createAciStandbyPoolBackend({ ...BASE, ...more })).toThrow(TypeError)
  })

  test('a folder of this host is refused with the backend that has it; a share is for cold groups', () => {
    const hostDir: ContainerSandboxLayout = { outputs: { source: { kind: 'hostDir', hostPath: '/tmp' } } }
    const unsupported = (message: string) =>
      expect.objectContaining({
        code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED',
        message: expect.stringContaining(message) as string,
      }) as Error
    expect(() => createAciStandbyPoolBackend({ ...BASE, pool: POOL, layout: hostDir })).toThrow(
      unsupported("runtime: 'docker'"),
    )
    expect(() => createAciStandbyPoolBackend({ ...BASE, pool: POOL, layout })).toThrow(unsupported('standby pool'))
    createAciStandbyPoolBackend({ ...BASE, group: { image: 'i', subnetId: SUBNET }, layout })
  })
})

test('a cold group holds to Azure’s description: image, subnet, shares, and never a restart', () => {
  const options = resolveAciOptions({
    ...BASE,
    layout,
    group: {
      image: 'r.example/sandbox:1',
      subnetId: SUBNET,
      registry: { server: 'r.example', username: 'u', password: 'marker-registry' },
    },
  })
  const { body, secrets } = groupBody(options, {
    settings: '{}',
    tags: { 'sallyport.sandbox': 'x' },
    memoryLimitMb: 700,
  })
  expect(
    contractCheck()({
      method: 'PUT',
      path: '/subscriptions/s/resourceGroups/r/providers/Microsoft.ContainerInstance/containerGroups/x',
      query: new URLSearchParams('api-version=1'),
      body,
      status: 201,
    }),
  ).toEqual([])
  expect(body).toMatchObject({
    properties: {
      restartPolicy: 'Never',
      ipAddress: { type: 'Private' },
      subnetIds: [{ id: SUBNET }],
      volumes: [{ azureFile: { shareName: 'share', readOnly: true } }],
      containers: [
        {
          properties: {
            resources: { requests: { memoryInGB: 0.7 } },
            volumeMounts: [{ mountPath: '/mnt/uploads', readOnly: true }],
          },
        },
      ],
    },
  })
  expect(secrets).toEqual([KEY, 'marker-registry'])
  expect(options.folders.map(({ path, writable }) => [path, writable])).toEqual([
    ['/work', true],
    ['/mnt/uploads', false],
  ])
})

test('what Azure echoes of a key or a password is not shown', async () => {
  const subject = await openSubject({}, { pool: undefined as never, group: { image: 'i', subnetId: SUBNET }, layout })
  open.push(subject)
  subject.azure.troubles.set('PUT', [
    { status: 400, code: 'InvalidRequestContent', message: `could not mount with key ${KEY}` },
  ])
  const error = await faultOf(subject.start())
  expect(error.message).toContain('could not mount with key […]')
})

describe('a pool', () => {
  const metricsOf = async (registry: Registry): Promise<string> =>
    (await registry.metrics())
      .split('\n')
      .filter((line) => !line.startsWith('#'))
      .join('\n')

  test('is as full as Azure says', async () => {
    const subject = await openSubject({ ready: 4, poolHealth: { code: 'HealthState/degraded', message: 'no room' } })
    open.push(subject)
    expect(await readStandbyPool(subject.options)).toEqual({
      pool: 'ready',
      healthy: false,
      message: 'no room',
      running: 4,
      creating: 2,
      deleting: 1,
      capacity: 5,
    })
    const registry = new Registry()
    registerStandbyPoolMetrics(registry, subject.options)
    const asked = () => subject.azure.log.filter(({ path }) => path.includes('StandbyPool')).length
    const before = asked()
    const text = await metricsOf(registry)
    for (const line of [
      'instances{pool="ready",state="running"} 4',
      'capacity{pool="ready"} 5',
      'healthy{pool="ready"} 0',
      'read_ok{pool="ready"} 1',
    ])
      expect(text).toContain(`sallyport_standby_pool_${line}`)
    await registry.metrics()
    expect(asked() - before).toBe(2)
    mustHide(text)
  })

  test('that can not be looked at is absent from the metrics rather than old', async () => {
    const subject = await openSubject({ isKnown: () => false })
    open.push(subject)
    const registry = new Registry()
    registerStandbyPoolMetrics(registry, subject.options)
    const text = await metricsOf(registry)
    expect(text).toContain('sallyport_standby_pool_read_ok{pool="ready"} 0')
    expect(text).not.toContain('instances{')
  })
})
