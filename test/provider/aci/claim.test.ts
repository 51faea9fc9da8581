/** What Azure is asked when a sandbox is made and taken away, and what becomes of it when Azure answers late, wrongly or not at all. */
import fs from 'node:fs'
import type net from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import type { AciStandbyPoolOptions } from '../../../provider/backends/aci/aci-options.ts'
import { newSandboxId } from '../../../provider/runtime-folder.ts'
import { type ArmServer, CONTAINER, POOL, PROFILE, SCOPE, type Trouble } from './arm-server.ts'
import { EXAMPLE, NO_DESCRIPTION } from './contract.ts'
import { faultOf, mustHide, openSubject, standIn, type Subject, WORKER_BEARER } from './subject.ts'

vi.setConfig({ testTimeout: 60_000 })
if (NO_DESCRIPTION !== undefined) console.log(NO_DESCRIPTION)

const open: Subject[] = []
const subject = async (...given: Parameters<typeof openSubject>): Promise<Subject> => {
  const made = await openSubject(...given)
  open.push(made)
  return made
}
afterEach(async () => {
  for (const each of open.splice(0)) {
    const { faults } = each.azure
    await each.close()
    expect(faults).toEqual([])
  }
})

const puts = ({ log }: ArmServer) => log.filter(({ method }) => method === 'PUT').map(({ body }) => body as { readonly location: string; readonly tags?: object; readonly properties: Readonly<Record<string, unknown>> }) // prettier-ignore
const troubles = (azure: ArmServer, kind: string, ...what: Trouble[]): void => void azure.troubles.set(kind, what)

describe('a claim', () => {
  test('has what Azure’s own example has, and tags beside it', async () => {
    const { azure, start } = await subject()
    await start({ timeoutMs: 60_000 })
    const [body] = puts(azure)
    expect(Object.keys(body ?? {}).sort()).toEqual(['location', 'properties', 'tags'])
    expect(body?.properties).toEqual({
      containerGroupProfile: {
        id: `${SCOPE}/Microsoft.ContainerInstance/containerGroupProfiles/${PROFILE}`,
        revision: 1,
      },
      standbyPoolProfile: { id: `${SCOPE}/Microsoft.StandbyPool/standbyContainerGroupPools/${POOL}` },
      containers: [
        { name: CONTAINER, properties: { configMap: { keyValuePairs: { settings: expect.any(String) as string } } } },
      ],
    })
    if (NO_DESCRIPTION !== undefined) return
    const example = JSON.parse(fs.readFileSync(EXAMPLE, 'utf8')) as {
      readonly parameters: { readonly containerGroup: { readonly properties: object } }
    }
    expect(Object.keys(body?.properties ?? {}).sort()).toEqual(
      Object.keys(example.parameters.containerGroup.properties).sort(),
    )
  })

  test('can leave the tags to a request of their own', async () => {
    const { azure, backend, start } = await subject({}, { tagging: 'update' })
    await start({ labels: { owner: 'h', 'created-at': '2026-01-01T00:00:00.000Z', team: 'blue' } })
    expect(puts(azure)[0]).not.toHaveProperty('tags')
    expect(azure.log.filter(({ method }) => method === 'PATCH')).toHaveLength(1)
    expect((await backend.list())[0]?.labels).toMatchObject({ team: 'blue' })
  })

  test('says whether an empty pool is a fault only when somebody does', async () => {
    for (const failContainerGroupCreateOnReuseFailure of [true, false]) {
      const { azure, start } = await subject(
        {},
        {
          pool: {
            name: POOL,
            profile: PROFILE,
            revision: 3,
            container: CONTAINER,
            failContainerGroupCreateOnReuseFailure,
          },
        },
      )
      await start()
      expect(puts(azure)[0]?.properties).toMatchObject({
        standbyPoolProfile: { failContainerGroupCreateOnReuseFailure },
        containerGroupProfile: { revision: 3 },
      })
    }
  })

  test('tells Azure neither the lasting bearer of the worker, nor a token, nor the caller’s variables; the first bearer is used up by then', async () => {
    const { azure, backend, start } = await subject()
    const { connect } = await start({ timeoutMs: 90_000 })
    mustHide(JSON.stringify(azure.log))
    mustHide(JSON.stringify(await backend.list()))
    const [body] = puts(azure)
    const [container] = body?.properties['containers'] as readonly {
      readonly properties: { readonly configMap: { readonly keyValuePairs: { readonly settings: string } } }
    }[]
    const settings = JSON.parse(container?.properties.configMap.keyValuePairs.settings ?? '') as Record<string, unknown>
    expect(settings).toEqual({
      token: expect.stringMatching(/^[\w-]{43}$/) as string,
      listen: { host: '0.0.0.0', port: expect.any(Number) as number },
      roots: [{ path: '/workspace', writable: true }],
      gateway: { host: '127.0.0.1', port: 3128, url: 'http://198.19.0.9:3128/' },
      timeToLiveMs: 90_000,
      whole: true,
    })
    const ask = async (bearer: string): Promise<string> => {
      const socket = (await connect?.()) as net.Socket
      socket.write(
        `GET /healthz HTTP/1.1\r\nhost: worker\r\nconnection: close\r\nauthorization: Bearer ${bearer}\r\n\r\n`,
      )
      let reply = ''
      for await (const chunk of socket as AsyncIterable<Buffer>) reply += chunk.toString()
      return reply.split(' ')[1] ?? ''
    }
    expect(await ask(WORKER_BEARER)).toBe('200')
    expect(await ask(settings['token'] as string)).toBe('401')
  })

  test('that the pool serves is told from one that was made cold', async () => {
    const { azure, backend, start } = await subject({ ready: 1 })
    const [first, second] = [newSandboxId(), newSandboxId()]
    await start({ id: first })
    await start({ id: second })
    const listed = new Map((await backend.list()).map(({ id, platform }) => [id, platform]))
    expect(listed.get(first)).toMatchObject({
      'created-from-standby-pool': 'true',
      name: `sallyport-${first.replace('_', '-')}`,
    })
    expect(listed.get(second)).toMatchObject({ 'created-from-standby-pool': 'false' })
    expect(azure.groups.size).toBe(2)
  })

  test('is waited for however Azure tells of it', async () => {
    for (const style of ['operation', 'location', 'none'] as const) {
      const { azure, start } = await subject({ style, takesMs: 200 })
      const started = await start()
      await started.stop()
      expect(azure.groups.size).toBe(0)
    }
  })

  test('gives up with the time, and says so', async () => {
    const { start } = await subject({ takesMs: 3_000 }, { createTimeoutMs: 200 })
    expect(await faultOf(start())).toMatchObject({
      fault: 'operation_failed',
      message: expect.stringContaining('not done after 0.2 s') as string,
    })
  })
})

describe('a claim whose reply is lost', () => {
  test.each([
    ['after Azure took it', ['lost-after'] as Trouble[], 1],
    ['before it arrived', ['lost-before'] as Trouble[], 2],
    ['with half a reply', ['half'] as Trouble[], 2],
    ['with an error of Azure’s own', [{ status: 503, code: 'ServerBusy', message: 'try later' }] as Trouble[], 2],
  ])('%s is looked for by its name, and made again only when it is not there', async (_name, lost, claims) => {
    const { azure, start } = await subject()
    troubles(azure, 'PUT', ...lost)
    const { stop } = await start()
    expect(azure.groups.size).toBe(1)
    // Those that never were answered are not in the log.
    const logged = azure.log.map(({ method }) => method)
    expect(logged.filter((method) => method === 'PUT').length).toBeLessThanOrEqual(claims)
    expect(logged.indexOf('GET')).toBeGreaterThan(-1)
    expect(azure.settings.ready).toBe(999)
    await stop()
    expect(azure.groups.size).toBe(0)
  })

  test('too often is an error with an unknown outcome', async () => {
    const { azure, start } = await subject()
    troubles(azure, 'PUT', ...Array.from({ length: 9 }, () => 'lost-before' as const))
    expect(await faultOf(start())).toMatchObject({ fault: 'unreachable', outcome: 'unknown' })
    expect(azure.groups.size).toBe(0)
  })

  test('and whose name somebody else has is theirs', async () => {
    const { azure, start } = await subject()
    const id = newSandboxId()
    const name = `sallyport-${id.replace('_', '-')}`
    azure.groups.set(name, {
      name,
      body: { location: 'westeurope', properties: { containers: [] } },
      tags: { 'sallyport.sandbox': 'sbx_other' },
      state: 'Succeeded',
      isFromPool: false,
      machine: undefined,
      address: '127.0.0.1',
    })
    troubles(azure, 'PUT', 'lost-before')
    expect(await faultOf(start({ id }))).toMatchObject({ fault: 'name_taken' })
  })

  test('is asked again after 429, not before the time that Azure names', async () => {
    const { azure, start } = await subject()
    troubles(azure, 'PUT', {
      status: 429,
      code: 'TooManyRequests',
      message: 'slow down',
      headers: { 'retry-after': '1' },
    })
    const beganMs = performance.now()
    await start()
    expect(performance.now() - beganMs).toBeGreaterThan(990)
  })
})

describe('bad input', () => {
  const claimed = async (
    settings: Parameters<typeof openSubject>[0],
    more?: Partial<AciStandbyPoolOptions>,
    ...put: Trouble[]
  ) => {
    const made = await subject(settings, more)
    troubles(made.azure, 'PUT', ...put)
    return faultOf(made.start())
  }

  test('wrong credentials: Azure’s words and our advice', async () => {
    const { backend, start } = await subject({ isKnown: () => false })
    for (const asked of [backend.check(), start(), backend.list()]) {
      const error = await faultOf(asked)
      expect(error).toMatchObject({ fault: 'credentials_refused', code: 'SALLYPORT_SANDBOX_BACKEND_MISSING' })
      expect(error.message).toContain('The access token is invalid')
      expect(error.message).toContain('of which tenant')
    }
  })

  test('an identity that may not: which role it needs', async () => {
    const error = await claimed(
      {},
      {},
      {
        status: 403,
        code: 'AuthorizationFailed',
        message: 'The client does not have authorization to perform action.',
      },
    )
    expect(error).toMatchObject({ fault: 'credentials_refused' })
    expect(error.message).toContain('Microsoft.ContainerInstance/containerGroups')
  })

  test('a token that can not be had', async () => {
    const { start } = await subject({}, { getArmToken: () => Promise.reject(new Error('no login here')) })
    expect(await faultOf(start())).toMatchObject({
      fault: 'credentials_refused',
      message: expect.stringContaining('no login here') as string,
    })
  })

  test('a pool that is not there', async () => {
    const { backend } = await subject({ hasPool: false })
    const error = await faultOf(backend.check())
    expect(error).toMatchObject({ fault: 'not_found' })
    expect(error.message).toContain(`standbyContainerGroupPools/${POOL}`)
    const { start } = await subject({}, { pool: { name: 'nope', profile: PROFILE, container: CONTAINER } })
    expect(await faultOf(start())).toMatchObject({ fault: 'not_found' })
  })

  test('a resource group that is not there is told from a sandbox that is not', async () => {
    const { backend, start } = await subject({}, { resourceGroup: 'nope' })
    for (const asked of [start(), backend.list(), backend.attach(newSandboxId())])
      expect(await faultOf(asked)).toMatchObject({ fault: 'not_found' })
  })

  test('a pool of another profile, and one without a subnet', async () => {
    const other = await subject({}, { pool: { name: POOL, profile: 'another', container: CONTAINER } })
    expect(await faultOf(other.backend.check())).toMatchObject({ fault: 'setup_unusable' })
    const bare = await subject({ poolSubnets: [] })
    expect(await faultOf(bare.backend.check())).toMatchObject({
      fault: 'network_unsafe',
      code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
    })
    const unsafe = await subject({ poolSubnets: [], addressType: 'Public' }, { unsafePublicAddress: true })
    await unsafe.backend.check()
    await unsafe.start()
    expect(unsafe.backend.capabilities.leftOpen.join()).toContain('internet')
  })

  test('a name of a container that the profile does not have', async () => {
    expect(
      (await claimed({}, { pool: { name: POOL, profile: PROFILE, container: 'sallyport-worker' } })).message,
    ).toContain('not one of the container group profile')
  })

  test('an empty pool, where a cold group is not wanted', async () => {
    const error = await claimed(
      { ready: 0 },
      { pool: { name: POOL, profile: PROFILE, container: CONTAINER, failContainerGroupCreateOnReuseFailure: true } },
    )
    expect(error).toMatchObject({ fault: 'capacity_exhausted' })
    expect(error.message).toContain('maxReadyCapacity')
  })

  test.each([
    [
      'a quota that is used up',
      { status: 409, code: 'ContainerGroupQuotaReached', message: 'Resource type container group quota exceeded.' },
      'quota_exhausted',
    ],
    [
      'a region that is gone',
      { status: 400, code: 'LocationNotAvailableForResourceType', message: 'The provided location is not available.' },
      'region_unavailable',
    ],
    [
      'a name conflict',
      { status: 409, code: 'ContainerGroupTransitioning', message: 'still transitioning' },
      'name_taken',
    ],
    [
      'a provider that is not registered',
      { status: 409, code: 'MissingSubscriptionRegistration', message: 'not registered' },
      'not_found',
    ],
    [
      'an image that can not be pulled',
      { status: 400, code: 'InaccessibleImage', message: 'The image is not accessible.' },
      'image_unusable',
    ],
    ['a reply that is not JSON', 'not-json', 'unreadable_reply'],
    ['a reply that is too long', 'long', 'unreadable_reply'],
    ['a reply of another shape', 'other-shape', 'unreadable_reply'],
  ] as const)('%s', async (_name, trouble, fault) => {
    const made = await subject()
    troubles(made.azure, 'PUT', ...Array.from({ length: 9 }, () => trouble))
    troubles(made.azure, 'GET', ...(typeof trouble === 'string' ? Array.from({ length: 9 }, () => trouble) : []))
    expect(await faultOf(made.start())).toMatchObject({ fault })
  })

  test.each([
    ['a quota', { code: 'ContainerGroupQuotaReached', message: 'quota' }, 'quota_exhausted'],
    ['an image', { code: 'InaccessibleImage', message: 'The image is not accessible.' }, 'image_unusable'],
    ['what nobody knows', { code: 'Whatever', message: `It rained.\n${'x'.repeat(999)}` }, 'operation_failed'],
  ])('an operation that ends as `Failed`, for %s', async (_name, ends, fault) => {
    const error = await claimed({}, {}, { ends })
    expect(error).toMatchObject({ fault })
    expect(error.message.length).toBeLessThan(900)
    expect(error.message).not.toContain('\n')
  })

  test('an image without a worker, one whose container ends, and one with a worker of another version', async () => {
    expect(await claimed({ machine: standIn('stranger') })).toMatchObject({
      fault: 'image_unusable',
      code: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
    })
    const ended = await claimed({ machine: standIn('ends') })
    expect(ended).toMatchObject({ fault: 'image_unusable' })
    expect(ended.message).toContain('ended with 66')
    expect(await claimed({ machine: standIn('other-version') })).toMatchObject({ fault: 'worker_version' })
    expect(await claimed({ machine: standIn('nobody') }, { workerTimeoutMs: 500 })).toMatchObject({
      fault: 'worker_silent',
    })
  })

  test('a profile that restarts its container, and a group with a public address', async () => {
    expect((await claimed({ restartPolicy: 'Always' })).message).toContain('must be `Never`')
    expect(await claimed({ addressType: 'Public' })).toMatchObject({ fault: 'network_unsafe' })
  })
})

describe('taking it away', () => {
  test('resolves when Azure no longer knows it, and a second time at once', async () => {
    const { azure, start } = await subject({ takesMs: 150 })
    const { stop } = await start()
    const both = [stop(), stop()]
    expect(azure.groups.size).toBe(1)
    await Promise.all(both)
    expect(azure.groups.size).toBe(0)
    await stop()
    expect(azure.log.filter(({ method }) => method === 'DELETE')).toHaveLength(1)
  })

  test('after 429 and lost replies is tried again', async () => {
    const { azure, start } = await subject()
    const { stop } = await start()
    troubles(
      azure,
      'DELETE',
      { status: 429, code: 'TooManyRequests', headers: { 'retry-after': '0' } },
      'lost-after',
      'half',
    )
    troubles(azure, 'GET', 'lost-before', 'half', { status: 500 })
    await stop()
    expect(azure.groups.size).toBe(0)
  })

  test.each([
    ['refuses', { status: 403, code: 'AuthorizationFailed', message: 'no' }, 'credentials_refused'],
    ['fails', { ends: { code: 'Internal', message: 'it broke' } }, 'operation_failed'],
  ])('fails as Azure %s, and can be tried again', async (_name, trouble, fault) => {
    const { azure, start } = await subject()
    const { stop } = await start()
    troubles(azure, 'DELETE', trouble)
    expect(await faultOf(stop())).toMatchObject({ fault })
    expect(azure.groups.size).toBe(1)
    await stop()
    expect(azure.groups.size).toBe(0)
  })

  test('fails when it is not gone in time', async () => {
    const { azure, start } = await subject({}, { removeTimeoutMs: 300 })
    const { stop } = await start()
    azure.settings.takesMs = 2_000
    expect((await faultOf(stop())).message).toContain('may still cost')
  })

  test('a 404 that is not Azure’s word for its absence is no end', async () => {
    const { azure, start } = await subject()
    const { stop } = await start()
    troubles(azure, 'DELETE', { status: 404, code: 'ResourceGroupNotFound', message: 'gone' })
    expect(await faultOf(stop())).toMatchObject({ fault: 'not_found' })
  })
})

describe('what there is', () => {
  test('is listed page by page, by name and tags; what is not ours is left out', async () => {
    const { azure, backend, start } = await subject()
    const ids = Array.from({ length: 5 }, newSandboxId)
    for (const id of ids)
      await start({
        id,
        labels: {
          owner: 'host-1',
          'created-at': '2026-01-02T03:04:05.000Z',
          'expires-at': '2026-01-02T04:04:05.000Z',
          team: 'blue',
        },
      })
    for (const name of ['web', 'sallyport-web', 'sallyport-sbx-short'])
      azure.groups.set(name, {
        name,
        body: { location: 'westeurope', properties: { containers: [] } },
        tags: {},
        state: 'Succeeded',
        isFromPool: false,
        machine: undefined,
        address: undefined,
      })
    const listed = await backend.list()
    expect(listed.map(({ id }) => id).sort()).toEqual([...ids].sort())
    expect(listed[0]).toMatchObject({
      createdAtMs: Date.parse('2026-01-02T03:04:05.000Z'),
      expiresAtMs: Date.parse('2026-01-02T04:04:05.000Z'),
      labels: { team: 'blue', owner: 'host-1' },
    })
  })

  test('is attached to by its name; from a stale list too, which names what is gone', async () => {
    const { azure, backend, start } = await subject({ isListStale: true })
    const id = newSandboxId()
    await start({ id })
    const attached = await backend.attach(id)
    await attached?.stop()
    expect((await backend.list()).map((info) => info.id)).toEqual([id])
    expect(await backend.attach(id)).toBeUndefined()
    expect(azure.groups.size).toBe(0)
  })

  test('that has ended is removed when it is looked for', async () => {
    const { azure, backend, start } = await subject()
    const id = newSandboxId()
    await start({ id })
    await azure.groups.get(`sallyport-${id.replace('_', '-')}`)?.machine?.stop()
    expect(await backend.attach(id)).toBeUndefined()
    expect(azure.groups.size).toBe(0)
  })
})
