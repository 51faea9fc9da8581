/** Fly's Machines API, as far as sandboxes need it. Whatever it says is checked before it is believed. */
import net from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { createPlatformClient, type PlatformClient } from '../platform/platform-client.ts'
import { PlatformError } from '../platform/platform-error.ts'
import { explainFly } from './explain-fly.ts'
import type { ResolvedFlyOptions } from './fly-options.ts'
import type { MachineRequest } from './machine-request.ts'
import { policiesSchema, type NetworkPolicy } from './network-policy.ts'

const eventSchema = z.object({
  type: z.string().max(100).optional(),
  request: z.object({ exit_event: z.object({ exit_code: z.number().optional() }).optional() }).nullish(),
})
const machineSchema = z.object({
  id: z.string().regex(/^[a-z0-9]{1,64}$/),
  state: z.string().max(64),
  region: z.string().max(64).optional(),
  version: z.string().max(64).optional(),
  instance_id: z.string().max(64).optional(),
  private_ip: z.string().max(64).optional(),
  created_at: z.string().max(64).optional(),
  config: z.object({ metadata: z.record(z.string(), z.string()).nullish() }).nullish(),
  events: z.array(eventSchema).nullish(),
})

/** One machine, as the platform has it. */
export type Machine = z.infer<typeof machineSchema>

/** What a command of the platform's own came to. */
export type MachineExec = z.infer<typeof execSchema>
const execSchema = z.object({ exit_code: z.number().optional(), stdout: z.string().optional(), stderr: z.string().optional() }) // prettier-ignore

/** Speaks to the API about one app. Every method throws PlatformError, or the reason of `signal`. */
export interface MachinesApi {
  readonly checkApp: () => Promise<void>
  readonly policies: (signal?: AbortSignal) => Promise<readonly NetworkPolicy[]>
  readonly createPolicy: (policy: NetworkPolicy, signal?: AbortSignal) => Promise<void>
  /** Asked once; when its reply is lost, the error has the outcome `unknown`. */
  readonly create: (request: MachineRequest, secrets: readonly string[], deadlineMs: number, signal?: AbortSignal) => Promise<Machine> // prettier-ignore
  /** Undefined when it is gone. */
  readonly get: (id: string, signal?: AbortSignal) => Promise<Machine | undefined>
  /** Those with this metadata, of every page. */
  readonly list: (metadata: Readonly<Record<string, string>>, options?: ListOptions) => Promise<readonly Machine[]>
  /** Waits for a minute at most; false when it is not so by then. A machine that is gone is `destroyed`. */
  readonly wait: (machine: Pick<Machine, 'id' | 'version' | 'instance_id'>, state: 'started' | 'destroyed', withinMs: number, signal?: AbortSignal) => Promise<boolean> // prettier-ignore
  readonly exec: (id: string, command: readonly string[], signal?: AbortSignal) => Promise<MachineExec>
  /** Ends it and waits until it is gone; nothing there is fine. */
  readonly destroy: (id: string) => Promise<void>
  readonly close: () => void
}

/** How machines are listed. */
export interface ListOptions {
  /** Also those that are gone, for as long as the platform remembers them; false by default. */
  readonly isWithEnded?: boolean
  readonly signal?: AbortSignal | undefined
}

const LONGEST_WAIT_MS = 60_000
/** For the reply, beyond the time that the platform holds it back. */
const WAIT_GRACE_MS = 5_000
const PAGE = 500
const MAX_PAGES = 200
const EXEC_TIMEOUT_S = 10
const LEASE_S = 30
const DESTROY_TIMEOUT_MS = 150_000
const LEASE_PAUSE_MS = 2_000
/** It has begun to end, or has ended. */
const ENDED = new Set(['stopped', 'failed', 'destroying', 'destroyed'])

/** Whether a machine will not run again: none of ours is ever started anew. */
export function hasEnded({ state }: Machine): boolean {
  return ENDED.has(state)
}

/** Connects to nothing yet. @throws TypeError for a URL to which the token must not go */
export function createMachinesApi(options: Pick<ResolvedFlyOptions, 'apiToken' | 'apiUrl' | 'app'>): MachinesApi {
  const { apiToken, app } = options
  const client = createPlatformClient({
    platform: 'Fly',
    baseUrl: options.apiUrl,
    // A token may bring its own scheme.
    authorize: () => Promise.resolve({ authorization: apiToken.includes(' ') ? apiToken : `Bearer ${apiToken}` }),
    explain: explainFly(app),
  })
  const base = `/v1/apps/${app}`
  const of = (id: string): string => `${base}/machines/${id}`

  const get = async (id: string, signal?: AbortSignal): Promise<Machine | undefined> => {
    const { status, body } = await client.request({ method: 'GET', path: of(id), expected: [200, 404], retry: 'safe', signal, action: 'look at the machine' }) // prettier-ignore
    if (status === 404) return undefined
    const machine = read(machineSchema, body, 'a machine')
    return machine.state === 'destroyed' ? undefined : machine
  }

  const wait: MachinesApi['wait'] = async (machine, state, withinMs, signal) => {
    const timeout = Math.max(1, Math.ceil(Math.min(withinMs, LONGEST_WAIT_MS) / 1_000))
    const { status } = await client.request({
      method: 'GET',
      path: `${of(machine.id)}/wait`,
      query: { state, timeout, version: machine.version ?? machine.instance_id },
      // 400 and 408: it is not so, and may not become so.
      expected: [200, 400, 404, 408],
      retry: 'safe',
      tryMs: timeout * 1_000 + WAIT_GRACE_MS,
      deadlineMs: timeout * 1_000 + 2 * WAIT_GRACE_MS,
      signal,
      action: 'wait for the machine',
    })
    return status === 200 || (status === 404 && state === 'destroyed')
  }

  return {
    get,
    wait,
    checkApp: async () => {
      await client.request({ method: 'GET', path: base, expected: [200], retry: 'safe', action: `look at the app \`${app}\`` }) // prettier-ignore
    },
    policies: async (signal) => {
      const { body } = await client.request({ method: 'GET', path: `${base}/network_policies`, expected: [200], retry: 'safe', signal, action: 'read the network policies' }) // prettier-ignore
      return read(policiesSchema, body ?? [], 'network policies')
    },
    createPolicy: async (policy, signal) => {
      // Two of the same allow what one does.
      await client.request({ method: 'POST', path: `${base}/network_policies`, body: policy, expected: [200, 201], retry: 'safe', signal, action: 'make the network policy' }) // prettier-ignore
    },
    create: (request, secrets, deadlineMs, signal) => create(client, `${base}/machines`, { request, secrets, deadlineMs, signal }), // prettier-ignore
    list: (metadata, given) => list(client, `${base}/machines`, metadata, given),
    exec: async (id, command, signal) => {
      const { body } = await client.request({ method: 'POST', path: `${of(id)}/exec`, body: { command, timeout: EXEC_TIMEOUT_S }, expected: [200], retry: 'never', signal, action: 'run a command in the machine' }) // prettier-ignore
      return read(execSchema, body, 'the end of a command')
    },
    destroy: (id) => destroy(client, of(id), () => get(id), (withinMs) => wait({ id }, 'destroyed', withinMs)), // prettier-ignore
    close: client.close,
  }
}

async function create(
  client: PlatformClient,
  path: string,
  { request, secrets, deadlineMs, signal }: { readonly request: MachineRequest; readonly secrets: readonly string[]; readonly deadlineMs: number; readonly signal: AbortSignal | undefined }, // prettier-ignore
): Promise<Machine> {
  const endMs = performance.now() + deadlineMs
  for (;;) {
    try {
      const leftMs = Math.max(1, endMs - performance.now())
      const { body } = await client.request({ method: 'POST', path, body: request, expected: [200, 201], retry: 'never', deadlineMs: leftMs, tryMs: leftMs, signal, secrets, action: 'create the machine' }) // prettier-ignore
      return read(machineSchema, body, 'a machine', 'unknown')
    } catch (error) {
      // Nothing was made of it, so that it may be asked for again.
      if (!(error instanceof PlatformError) || error.fault !== 'rate_limited') throw error
      const waitMs = error.retryAfterMs ?? 1_000 + Math.random() * 1_000
      if (performance.now() + waitMs >= endMs) throw error
      await delay(waitMs, undefined, { signal }).catch(() => signal?.throwIfAborted())
    }
  }
}

/** A page may be short, or empty, with more behind it. */
async function list(
  client: PlatformClient,
  path: string,
  metadata: Readonly<Record<string, string>>,
  { isWithEnded = false, signal }: ListOptions = {},
): Promise<readonly Machine[]> {
  const found = new Map<string, Machine>()
  const filters = Object.fromEntries(Object.entries(metadata).map(([name, value]) => [`metadata.${name}`, value]))
  let cursor: string | undefined
  for (let page = 0; page < MAX_PAGES; page++) {
    const { body, headers } = await client.request({ method: 'GET', path, query: { ...filters, limit: PAGE, cursor, include_deleted: isWithEnded || undefined }, expected: [200], retry: 'safe', signal, action: 'list the machines' }) // prettier-ignore
    for (const machine of read(z.array(machineSchema), body ?? [], 'a list of machines')) found.set(machine.id, machine)
    const next = headers['fly-next-cursor']
    if (next === undefined || next === '')
      return [...found.values()].filter(({ state }) => isWithEnded || state !== 'destroyed')
    if (next === cursor) break
    cursor = next
  }
  throw new PlatformError('unreadable_reply', 'the list of machines of Fly has no end')
}

/** Somebody else's lease, of a deployment that runs, is waited for. */
async function destroy(
  client: PlatformClient,
  path: string,
  get: () => Promise<Machine | undefined>,
  waitGone: (withinMs: number) => Promise<boolean>,
): Promise<void> {
  const endMs = performance.now() + DESTROY_TIMEOUT_MS
  for (;;) {
    const lease = await client.request({ method: 'POST', path: `${path}/lease`, body: { description: 'sallyport: destroy', ttl: LEASE_S }, expected: [200, 201, 404, 409], retry: 'safe', action: 'take the lease of the machine' }) // prettier-ignore
    if (lease.status === 404) return
    if (lease.status !== 409) {
      const nonce = nonceIn(lease.body)
      const { status } = await client.request({ method: 'DELETE', path, query: { force: true }, headers: nonce === undefined ? {} : { 'fly-machine-lease-nonce': nonce }, expected: [200, 202, 404, 409], retry: 'safe', action: 'destroy the machine' }) // prettier-ignore
      if (status === 404) return
      if (status !== 409) break
    }
    if (performance.now() > endMs) throw new PlatformError('operation_failed', 'can not destroy the machine: somebody else holds its lease; `fly machine leases view` says who', { outcome: 'known' }) // prettier-ignore
    await delay(LEASE_PAUSE_MS)
  }
  for (;;) {
    const leftMs = endMs - performance.now()
    if (leftMs <= 0) throw new PlatformError('operation_failed', 'Fly took the order to destroy the machine, and it is still there; look at it with `fly machine status`', { outcome: 'unknown' }) // prettier-ignore
    if ((await waitGone(leftMs)) || (await get()) === undefined) return
    await delay(500)
  }
}

function nonceIn(body: unknown): string | undefined {
  const { nonce, data } = read(z.object({ nonce: z.string().max(200).optional(), data: z.object({ nonce: z.string().max(200) }).optional() }), body, 'a lease') // prettier-ignore
  const found = nonce ?? data?.nonce
  return found !== undefined && /^[\x21-\x7e]+$/.test(found) ? found : undefined
}

/** Where a machine's worker is reached. @throws PlatformError for what is no address of a private network: a bearer goes there */
export function privateAddressOf({ private_ip: address = '' }: Machine): string {
  if (isPrivate6(address)) return address
  throw new PlatformError('unreadable_reply', 'Fly gives the machine no address in its private network (`fdaa::/16`)')
}

/** An address of Fly's private networks, whose packets WireGuard carries. */
export function isPrivate6(address: string): boolean {
  return net.isIPv6(address) && /^fdaa:/i.test(address) && !address.includes('%')
}

function read<T>(schema: z.ZodType<T>, body: unknown, what: string, outcome: 'known' | 'unknown' = 'known'): T {
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  const where = parsed.error.issues[0]?.path.join('.') ?? ''
  throw new PlatformError('unreadable_reply', `Fly said something that is not ${what}${where === '' ? '' : ` (\`${where.slice(0, 100)}\`)`}`, { outcome }) // prettier-ignore
}
