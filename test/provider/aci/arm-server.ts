/**
 * Stands for Azure Resource Manager: holds every request and every reply of its own to Azure's descriptions, keeps container groups as Azure does, and can be
 * told to misbehave. Behind each group is the sandbox image's own entry with a real worker, in a machine of its own.
 */
import { once } from 'node:events'
import http from 'node:http'
import type net from 'node:net'
import { claimFault, contractCheck } from './contract.ts'
import { type Machine, startMachine } from './machine.ts'

export const SUBSCRIPTION = '00000000-0000-4000-8000-00000000000a'
export const RESOURCE_GROUP = 'sandboxes'
export const POOL = 'ready'
export const PROFILE = 'worker'
export const CONTAINER = 'demo1'
export const SCOPE = `/subscriptions/${SUBSCRIPTION}/resourceGroups/${RESOURCE_GROUP}/providers`

type Body = Readonly<Record<string, unknown>>

/** What happens to the next request of a kind, once for each entry. */
export type Trouble =
  | 'lost-before'
  | 'lost-after'
  | 'half'
  | 'hang'
  | 'not-json'
  | 'long'
  | 'other-shape'
  | {
      readonly status: number
      readonly code?: string
      readonly message?: string
      readonly headers?: http.OutgoingHttpHeaders
    }
  /** Of a PUT or DELETE: taken, and then it does not come to a good end. */
  | { readonly ends: { readonly code: string; readonly message: string } }

export interface KnownGroup {
  readonly name: string
  readonly body: Body & { readonly properties: Body }
  tags: Readonly<Record<string, string>>
  state: 'Creating' | 'Succeeded' | 'Failed' | 'Deleting'
  readonly isFromPool: boolean
  machine: Machine | undefined
  address: string | undefined
}

export interface ArmServer {
  readonly url: string
  readonly groups: Map<string, KnownGroup>
  readonly log: { readonly method: string; readonly path: string; readonly body: unknown; readonly status: number }[]
  /** What does not hold to the descriptions. */
  readonly faults: string[]
  /** By method, and `list`, `pool`, `operation` for those of GET that are not of one group. */
  readonly troubles: Map<string, Trouble[]>
  readonly settings: ArmSettings
  close(): Promise<void>
}

export interface ArmSettings {
  /** Tokens that are known; all by default. */
  isKnown: (token: string) => boolean
  ready: number
  hasPool: boolean
  poolSubnets: readonly string[]
  poolHealth: { readonly code: string; readonly message?: string }
  addressType: 'Private' | 'Public'
  restartPolicy: 'Never' | 'Always'
  /** How what takes its time is told. */
  style: 'operation' | 'location' | 'none'
  /** Milliseconds that it takes. */
  takesMs: number
  /** Lists also have what was there before. */
  isListStale: boolean
  /** What stands for the container; undefined: nothing that answers. */
  machine: typeof startMachine | undefined
}

export async function startArmServer(given: Partial<ArmSettings> = {}): Promise<ArmServer> {
  const check = contractCheck()
  const settings: ArmSettings = {
    isKnown: () => true,
    ready: 1_000,
    hasPool: true,
    poolSubnets: [`${SCOPE}/Microsoft.Network/virtualNetworks/v/subnets/sandboxes`],
    poolHealth: { code: 'HealthState/healthy' },
    addressType: 'Private',
    restartPolicy: 'Never',
    style: 'operation',
    takesMs: 50,
    isListStale: false,
    machine: startMachine,
    ...given,
  }
  const groups = new Map<string, KnownGroup>()
  const former: KnownGroup[] = []
  const log: ArmServer['log'] = []
  const faults: string[] = []
  const troubles = new Map<string, Trouble[]>()
  const operations = new Map<string, { status: string; error?: { code: string; message: string } }>()
  const running = new Set<Promise<void>>()
  let count = 0

  const groupReply = (group: KnownGroup, isListed: boolean): Body => {
    const { properties } = group.body
    const containers = (properties['containers'] as readonly (Body & { readonly properties: Body })[]).map(
      (container) => ({
        ...container,
        properties: {
          image: 'sandbox',
          ports: [{ port: 2024 }],
          resources: { requests: { cpu: 1, memoryInGB: 1.5 } },
          ...container.properties,
          ...(!isListed &&
            group.state === 'Succeeded' && { instanceView: { restartCount: 0, currentState: stateOf(group) } }),
        },
      }),
    )
    return {
      id: `${SCOPE}/Microsoft.ContainerInstance/containerGroups/${group.name}`,
      name: group.name,
      type: 'Microsoft.ContainerInstance/containerGroups',
      location: group.body['location'],
      tags: group.tags,
      properties: {
        ...properties,
        containers,
        provisioningState: group.state,
        isCreatedFromStandbyPool: group.isFromPool,
        restartPolicy: settings.restartPolicy,
        osType: 'Linux',
        sku: 'Standard',
        ...(group.address !== undefined && { ipAddress: { type: settings.addressType, ip: group.address, ports: [{ protocol: 'TCP', port: 2024 }] } }), // prettier-ignore
        ...(!isListed && { instanceView: { events: [], state: group.machine?.hasEnded() === true ? 'Stopped' : group.state === 'Succeeded' ? 'Running' : 'Pending' } }), // prettier-ignore
      },
    }
  }

  /** Goes on after the reply. */
  const later = (work: () => Promise<void>): string => {
    const id = `op-${++count}`
    operations.set(id, { status: 'InProgress' })
    const done = new Promise((resolve) => setTimeout(resolve, settings.takesMs)).then(work).then(
      () => void operations.set(id, { status: 'Succeeded' }),
      (error: unknown) =>
        void operations.set(id, { status: 'Failed', error: error as { code: string; message: string } }),
    )
    running.add(done)
    void done.finally(() => running.delete(done))
    return id
  }
  const told = (operation: string): http.OutgoingHttpHeaders => {
    const url = `${server.url}/subscriptions/${SUBSCRIPTION}/providers/Microsoft.ContainerInstance/locations/westeurope/operations/${operation}?api-version=2018-06-01`
    return settings.style === 'none' ? {} : { [settings.style === 'operation' ? 'azure-asyncoperation' : 'location']: url, 'retry-after': '0' } // prettier-ignore
  }

  const put = (
    name: string,
    body: Body & { readonly properties: Body },
    ends?: { code: string; message: string },
  ): Reply => {
    const known = groups.get(name)
    if (known !== undefined && known.state !== 'Succeeded') return refusal(409, 'ContainerGroupTransitioning', `The container group '${name}' is still transitioning, please retry later.`) // prettier-ignore
    const fault = claimFault(body, CONTAINER)
    if (fault !== undefined) return refusal(400, 'BadRequest', fault)
    const { standbyPoolProfile: pool } = body.properties as {
      standbyPoolProfile?: { id: string; failContainerGroupCreateOnReuseFailure?: boolean }
    }
    if (pool !== undefined && !pool.id.endsWith(`/standbyContainerGroupPools/${POOL}`)) return refusal(404, 'StandbyPoolNotFound', 'The standby pool was not found.') // prettier-ignore
    const isFromPool = pool !== undefined && settings.ready > 0
    if (pool?.failContainerGroupCreateOnReuseFailure === true && !isFromPool) return refusal(409, 'Conflict', 'Failed to reuse a container group of the standby pool.') // prettier-ignore
    if (isFromPool) settings.ready--
    const group: KnownGroup = { name, body, tags: (body['tags'] ?? {}) as Record<string, string>, state: 'Creating', isFromPool, machine: undefined, address: undefined } // prettier-ignore
    groups.set(name, group)
    const operation = later(async () => {
      if (ends !== undefined) {
        group.state = 'Failed'
        // eslint-disable-next-line @typescript-eslint/only-throw-error
        throw ends
      }
      const [container] = body.properties['containers'] as readonly { readonly name: string; readonly properties: { readonly configMap: { readonly keyValuePairs: { readonly settings: string } } } }[] // prettier-ignore
      group.machine = await settings.machine?.({ container: container?.name ?? '', settings: container?.properties.configMap.keyValuePairs.settings ?? '' }) // prettier-ignore
      group.address = group.machine?.address ?? '127.0.0.1'
      group.state = 'Succeeded'
    })
    return { status: known === undefined ? 201 : 200, body: groupReply(group, false), headers: told(operation) }
  }

  const remove = (group: KnownGroup, ends?: { code: string; message: string }): Reply => {
    group.state = 'Deleting'
    former.push({ ...group, state: 'Succeeded', machine: undefined })
    const operation = later(async () => {
      if (ends !== undefined) {
        group.state = 'Failed'
        // eslint-disable-next-line @typescript-eslint/only-throw-error
        throw ends
      }
      await group.machine?.stop()
      groups.delete(group.name)
    })
    return { status: 202, body: undefined, headers: told(operation) }
  }

  const page = (skip: number): Reply => {
    const all = [...groups.values(), ...(settings.isListStale ? former : [])]
    const left = all.length > skip + 2
    const next = `${server.url}${SCOPE}/Microsoft.ContainerInstance/containerGroups?api-version=2024-05-01-preview&$skiptoken=${skip + 2}`
    return { status: 200, body: { value: all.slice(skip, skip + 2).map((group) => groupReply(group, true)), ...(left && { nextLink: next }) } } // prettier-ignore
  }

  const poolReply = (isView: boolean): Reply => {
    if (!settings.hasPool) return refusal(404, 'ResourceNotFound', `The Resource 'Microsoft.StandbyPool/standbyContainerGroupPools/${POOL}' under resource group '${RESOURCE_GROUP}' was not found.`) // prettier-ignore
    const id = `${SCOPE}/Microsoft.StandbyPool/standbyContainerGroupPools/${POOL}`
    if (isView)
      return { status: 200, body: { id: `${id}/runtimeViews/latest`, name: 'latest', type: 'Microsoft.StandbyPool/standbyContainerGroupPools/runtimeViews', properties: { instanceCountSummary: [{ instanceCountsByState: [{ state: 'Running', count: settings.ready }, { state: 'Creating', count: 2 }, { state: 'Deleting', count: 1 }] }], status: settings.poolHealth, provisioningState: 'Succeeded' } } } // prettier-ignore
    return { status: 200, body: { id, name: POOL, type: 'Microsoft.StandbyPool/standbyContainerGroupPools', location: 'westeurope', properties: { elasticityProfile: { maxReadyCapacity: 5, refillPolicy: 'always' }, containerGroupProperties: { containerGroupProfile: { id: `${SCOPE}/Microsoft.ContainerInstance/containerGroupProfiles/${PROFILE}`, revision: 1 }, subnetIds: settings.poolSubnets.map((each) => ({ id: each })) }, provisioningState: 'Succeeded' } } } // prettier-ignore
  }

  const answer = (method: string, url: URL, body: unknown, ends?: { code: string; message: string }): Reply => {
    const operation = /\/operations\/(op-\d+)$/.exec(url.pathname)?.[1]
    if (operation !== undefined) {
      const { status, error } = operations.get(operation) ?? { status: 'Failed' }
      if (settings.style === 'location' && status === 'InProgress') return { status: 202, body: undefined, headers: { 'retry-after': '0' } } // prettier-ignore
      return { status: 200, body: settings.style === 'location' && status === 'Succeeded' ? {} : { status, error }, headers: { 'retry-after': '0' } } // prettier-ignore
    }
    if (!url.pathname.startsWith(SCOPE))
      return refusal(404, 'ResourceGroupNotFound', 'Resource group could not be found.')
    if (url.pathname.includes('/Microsoft.StandbyPool/'))
      return poolReply(url.pathname.endsWith('/runtimeViews/latest'))
    const name = decodeURIComponent(/\/containerGroups\/([^/]+)$/.exec(url.pathname)?.[1] ?? '')
    if (name === '') return page(Number(url.searchParams.get('$skiptoken') ?? 0))
    const group = groups.get(name)
    if (method === 'PUT') return put(name, body as Body & { readonly properties: Body }, ends)
    if (method === 'DELETE') return group === undefined ? { status: 204, body: undefined } : group.state === 'Deleting' ? { status: 202, body: undefined } : remove(group, ends) // prettier-ignore
    if (group === undefined) return refusal(404, 'ResourceNotFound', `The Resource 'Microsoft.ContainerInstance/containerGroups/${name}' under resource group '${RESOURCE_GROUP}' was not found.`) // prettier-ignore
    if (method === 'PATCH') group.tags = { ...group.tags, ...(body as { tags: Record<string, string> }).tags }
    return { status: 200, body: groupReply(group, false) }
  }

  const listener = http.createServer((request, response) => {
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const { method = '' } = request
      const url = new URL(request.url ?? '', 'http://arm')
      const text = Buffer.concat(pieces).toString()
      const body: unknown = text === '' ? undefined : JSON.parse(text)
      const isOperation = url.pathname.includes('/operations/')
      const kind = isOperation ? 'operation' : url.pathname.includes('/Microsoft.StandbyPool/') ? 'pool' : method === 'GET' && url.pathname.endsWith('/containerGroups') ? 'list' : method // prettier-ignore
      const trouble = troubles.get(kind)?.shift()
      if (trouble === 'lost-before') return void request.socket.destroy()
      if (trouble === 'hang') return
      if (trouble === 'half') return void response.writeHead(200, { 'content-length': 900 }).write('{"name":', () => response.destroy()) // prettier-ignore
      if (trouble === 'not-json') return void response.writeHead(200, { 'content-type': 'text/html' }).end('<html>Sign in to the network</html>') // prettier-ignore
      if (trouble === 'long') return void response.writeHead(200).end(`"${'x'.repeat(2 ** 21)}"`)
      if (trouble === 'other-shape') return void response.writeHead(200).end('{"name":7}')
      const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1] ?? ''
      const refused = typeof trouble === 'object' && 'status' in trouble ? refusal(trouble.status, trouble.code ?? '', trouble.message ?? '', trouble.headers) : undefined // prettier-ignore
      const ends = typeof trouble === 'object' && 'ends' in trouble ? trouble.ends : undefined
      const reply = !settings.isKnown(token) ? refusal(401, 'InvalidAuthenticationToken', 'The access token is invalid.') : (refused ?? answer(method, url, body, ends)) // prettier-ignore
      if (!isOperation) {
        const query = new URLSearchParams(url.searchParams)
        // Of a page that Azure itself named.
        query.delete('$skiptoken')
        const found = check({ method, path: url.pathname, query, body, status: reply.status, reply: reply.body })
        faults.push(...found)
        log.push({ method, path: url.pathname, body, status: reply.status })
      }
      if (trouble === 'lost-after') return void request.socket.destroy()
      response.writeHead(reply.status, { 'content-type': 'application/json', ...reply.headers })
      response.end(reply.body === undefined ? '' : JSON.stringify(reply.body))
    })
  })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const server: ArmServer = {
    url: `http://127.0.0.1:${(listener.address() as net.AddressInfo).port}`,
    groups,
    log,
    faults,
    troubles,
    settings,
    close: async () => {
      listener.closeAllConnections()
      await new Promise((resolve) => listener.close(resolve))
      await Promise.all(running)
      for (const { machine } of groups.values()) await machine?.stop()
    },
  }
  return server
}

interface Reply {
  readonly status: number
  readonly body: Body | undefined
  readonly headers?: http.OutgoingHttpHeaders | undefined
}

function refusal(status: number, code: string, message: string, headers?: http.OutgoingHttpHeaders): Reply {
  return { status, body: { error: { code, message } }, headers }
}

function stateOf({ machine }: KnownGroup): Body {
  if (machine?.hasEnded() !== true) return { state: 'Running', startTime: new Date().toISOString() }
  return { state: 'Terminated', exitCode: machine.exitCode() ?? 137, detailStatus: 'Error' }
}
