/**
 * Ways out through a gateway in another process: a listener bound to each sandbox through the control API, under a lease that this process renews. No token
 * of a sandbox exists. When this process is killed, the lease lapses and the way out with it.
 */
import { rmSync } from 'node:fs'
import { chmod } from 'node:fs/promises'
import type net from 'node:net'
import { type EgressPolicy, type EgressPolicyData, SallyportError } from '../../policies/index.ts'
import { type SocketRelay, startSocketRelay } from '../backends/loopback-relay.ts'
import { type ControlAccess, type ControlClient, createControlClient, expected, isGone } from './control-client.ts'
import type { Egress, EgressLink, EgressRequest } from './egress.ts'
import { answerOf } from './resolved-policy.ts'
import { turns } from './turns.ts'

/** A gateway in another process, by its control API. */
export interface ControlledGateway extends ControlAccess {
  /**
   * Where its listeners are. `socket`, the default: at the socket of the sandbox itself, which takes the same machine, the same user, and a runtime root below
   * the gateway's `admin.bind.folders`. `{ host }`: on a free port of one of its `admin.bind.addresses`, and this process carries the sandbox there; whoever
   * reaches that port is the sandbox.
   */
  readonly bind?: 'socket' | { readonly host: string }
  /** How long a way out outlives this process; 60 by default, renewed three times as often. */
  readonly leaseSeconds?: number
}

/** How long the answer of a resolver holds, and how much longer while it fails. */
const FRESH_MS = 60_000
const STALE_MS = 300_000
/** After a renewal that failed. */
const RETRY_MS = 1_000

/**
 * Asks nobody yet.
 * @throws TypeError for options that can't be used
 */
export function controlledEgress(options: ControlledGateway): Egress {
  const { bind = 'socket', leaseSeconds = 60 } = options
  if (!(leaseSeconds >= 1 && leaseSeconds <= 86_400)) throw new TypeError('`leaseSeconds` is from 1 to 86400')
  const control = createControlClient(options)
  return {
    open: (request) => openLink(control, request, bind, leaseSeconds),
    close: () => {
      control.close()
      return Promise.resolve()
    },
  }
}

async function openLink(
  control: ControlClient,
  { sandbox, tenant, policy, socketPath }: EgressRequest,
  bind: NonNullable<ControlledGateway['bind']>,
  ttlSeconds: number,
): Promise<EgressLink> {
  let source = policy
  let resolvedMs = performance.now()
  let inForce = await dataOf(policy)
  let bound: Bound | undefined
  let isClosed = false
  let closing: Promise<void> | undefined
  const isClosing = (): boolean => isClosed

  const make = async (egress: EgressPolicyData): Promise<void> => {
    const address = bind === 'socket' ? { path: socketPath } : { host: bind.host, port: 0 }
    const body = { sandbox, tenant, egress, address, ttlSeconds }
    let answer = await control.ask('POST', '/v1/listeners', body)
    if (answer.error === 'conflict' && (await removeFormer(control, sandbox, socketPath)))
      answer = await control.ask('POST', '/v1/listeners', body)
    bound = boundOf(expected(answer, 201))
    // Whoever the sandbox runs as; the folders above keep others out.
    if (bind === 'socket') await chmod(socketPath, 0o666)
  }
  /** Gives the policy, or the listener anew where the gateway forgot it, as one that was restarted did. */
  const give = async (change: { readonly egress?: EgressPolicyData }): Promise<void> => {
    if (bound === undefined) return make(change.egress ?? inForce)
    const answer = await control.ask('PATCH', `/v1/listeners/${bound.id}`, { ttlSeconds, ...change })
    if (answer.status === 404) await make(change.egress ?? inForce)
    else expected(answer, 200)
  }
  const remove = async (id: string | undefined): Promise<void> => {
    if (id === undefined) return
    try {
      const answer = await control.ask('DELETE', `/v1/listeners/${id}`)
      if (answer.status !== 404) expected(answer, 204)
    } catch (error) {
      // A gateway that ended took its listeners along.
      if (!isGone(error)) throw error
    }
  }
  const inTurn = turns()
  const renew = async (): Promise<void> => {
    const fresh = await refreshed(source, inForce, performance.now() - resolvedMs)
    if (fresh.isAnswer) resolvedMs = performance.now()
    const isChange = JSON.stringify(fresh.policy) !== JSON.stringify(inForce)
    await give(isChange ? { egress: fresh.policy } : {})
    inForce = fresh.policy
  }

  let relay: SocketRelay | undefined
  try {
    await make(inForce)
    if (bind !== 'socket') {
      relay = await startSocketRelay(socketPath, () => bound?.address)
      await chmod(socketPath, 0o666)
    }
  } catch (error) {
    await relay?.close()
    await remove(bound?.id).catch(() => undefined)
    throw error
  }

  let timer: NodeJS.Timeout
  const again = (ms: number): void => {
    if (isClosing()) return
    timer = setTimeout(() => {
      inTurn(() => (isClosing() ? Promise.resolve() : renew())).then(
        () => again((ttlSeconds * 1000) / 3),
        () => again(Math.min(RETRY_MS, (ttlSeconds * 1000) / 6)),
      )
    }, ms).unref()
  }
  again((ttlSeconds * 1000) / 3)

  const close = async (): Promise<void> => {
    clearTimeout(timer)
    // At once, so that nothing new gets in while the gateway is asked.
    rmSync(socketPath, { force: true })
    const first = bound?.id
    const outcomes = await Promise.allSettled([relay?.close(), remove(first), inTurn(() => Promise.resolve())])
    // One that was being made meanwhile.
    if (bound?.id !== first) await remove(bound?.id)
    const failed = outcomes.find((outcome) => outcome.status === 'rejected')
    if (failed !== undefined) throw failed.reason
  }
  return {
    setPolicy: async (next) => {
      const asked = await dataOf(next)
      await inTurn(async () => {
        // What was closed meanwhile stays closed.
        if (isClosing()) return
        await give({ egress: asked })
        source = next
        resolvedMs = performance.now()
        inForce = asked
      })
    },
    close: () => {
      isClosed = true
      // One that failed is tried again by the next call.
      return (closing ??= close().catch((error: unknown) => {
        closing = undefined
        throw error
      }))
    },
  }
}

interface Bound {
  readonly id: string
  readonly address: net.NetConnectOpts
}

/** A resolver is asked when its answer is not fresh any more; when it fails for too long, nothing is allowed. */
async function refreshed(
  source: EgressPolicy,
  known: EgressPolicyData,
  ageMs: number,
): Promise<{ readonly policy: EgressPolicyData; readonly isAnswer: boolean }> {
  if (source.kind !== 'resolver' || ageMs < FRESH_MS) return { policy: known, isAnswer: false }
  try {
    return { policy: await dataOf(source), isAnswer: true }
  } catch {
    return { policy: ageMs < FRESH_MS + STALE_MS ? known : { kind: 'deny-all' }, isAnswer: false }
  }
}

/** @throws what a resolver throws */
async function dataOf(policy: EgressPolicy): Promise<EgressPolicyData> {
  return policy.kind === 'resolver' ? { kind: 'static', allowedHosts: await answerOf(policy.resolve) } : policy
}

/** What a process that was killed left at the socket of the same sandbox. */
async function removeFormer(control: ControlClient, sandbox: string, socketPath: string): Promise<boolean> {
  const { body } = await control.ask('GET', `/v1/listeners?sandbox=${encodeURIComponent(sandbox)}`)
  const { listeners = [] } = body as {
    readonly listeners?: readonly { readonly id: string; readonly address: { readonly path?: string } }[]
  }
  const former = listeners.find(({ address }) => address.path === socketPath)
  if (former === undefined) return false
  await control.ask('DELETE', `/v1/listeners/${former.id}`)
  return true
}

function boundOf(body: Readonly<Record<string, unknown>>): Bound {
  const { id, address } = body as { readonly id?: unknown; readonly address?: unknown }
  if (typeof id === 'string' && typeof address === 'object' && address !== null)
    return { id, address: address as net.NetConnectOpts }
  throw new SallyportError('SALLYPORT_GATEWAY_UNREACHABLE', 'what answers at `admin` is no control API of a gateway')
}
