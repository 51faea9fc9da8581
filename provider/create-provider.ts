/** Makes a provider: a backend, a gateway and the sandboxes of this process. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { checkPolicyShape, type EgressPolicy } from '../policies/index.ts'
import type { Gateway } from '../proxy/index.ts'
import { type Backend, credentialOf } from './backend.ts'
import { createSandbox, type MadeSandbox, type Workshop } from './create-sandbox.ts'
import { attachSandbox } from './attach-sandbox.ts'
import { boundEgress } from './egress/bound.ts'
import { controlledEgress } from './egress/controlled.ts'
import type { Egress } from './egress/egress.ts'
import { embeddedEgress } from './egress/embedded.ts'
import { remoteEgress } from './egress/remote.ts'
import { checkKnown, type KnownOptions } from './known-options.ts'
import { knownSandboxes } from './known-sandboxes.ts'
import { checkLabels } from './labels.ts'
import { liveSandbox } from './live-sandbox.ts'
import type { SandboxProviderOptions } from './provider-options.ts'
import { destroyForeign, isDue, reapGatewayFolders } from './reap.ts'
import {
  checkRuntimeRoot,
  dataOf,
  defaultRuntimeRoot,
  openRuntimeRoot,
  removeRuntimeFolder,
  writeMeta,
} from './runtime-folder.ts'
import type { CreateSandboxOptions, Sandbox, SandboxProvider } from './sandbox.ts'
import { SandboxError } from './sandbox-error.ts'
import { checkSpares, SpareSandboxes } from './spare-sandboxes.ts'
import { selectBackend } from './select-backend.ts'

/**
 * Makes a provider; it starts nothing before the first sandbox.
 * @throws SandboxError `SALLYPORT_SANDBOX_EGRESS_UNENFORCED` for a policy that the backend can't enforce, `SALLYPORT_SANDBOX_NOT_SUPPORTED` for what it
 * can't have here; ConfigError, TypeError or SallyportError for options that can't be used
 */
export function createSandboxProvider(options: SandboxProviderOptions): SandboxProvider {
  checkKnown('a provider', options, PROVIDER_OPTIONS)
  const runtimeRoot = checkRuntimeRoot(options.runtimeRoot ?? defaultRuntimeRoot())
  const { backend, unsafeUnenforced } = selectBackend(options.backend, runtimeRoot)
  const { defaultEgress = { kind: 'deny-all' } } = options
  const checkPolicy: (policy: unknown) => asserts policy is EgressPolicy = (policy) => {
    checkPolicyShape(policy)
    if (backend.capabilities.enforcement === 'none' && policy.kind !== 'allow-all' && !unsafeUnenforced)
      throw unenforced(backend, policy)
  }
  checkPolicy(defaultEgress)
  const egress = egressOf(options, runtimeRoot)
  checkReach(backend, egress)
  const spares = new SpareSandboxes({ backend, egress, runtimeRoot }, checkSpares(options.spares ?? 0))
  if (options.spares !== undefined && options.spares > 0 && backend.canBeSpare !== true) throw noSpares(backend)
  const workshop: Workshop = { backend, egress, runtimeRoot, takeSpare: spares.take }
  const live = new Map<string, { readonly sandbox: Sandbox; readonly isOwn: boolean }>()
  let closing: Promise<void> | undefined

  let checking: Promise<void> | undefined
  // Again after a failure: somebody may have installed what was missing.
  const ready = (): Promise<void> =>
    (checking ??= openRuntimeRoot(runtimeRoot)
      .then(() => (backend.startsAtOnce === true ? undefined : backend.check()))
      .catch((error: unknown) => {
        checking = undefined
        throw error
      }))
  const open = (): void => {
    if (closing !== undefined) throw new SandboxError('SALLYPORT_SANDBOX_DESTROYED', 'the provider is closed')
  }

  const keep = ({ meta, started, link, client }: MadeSandbox, isOwn: boolean): Sandbox => {
    const { id } = meta
    const sandbox = liveSandbox({
      id,
      environment: backend.environment,
      client,
      started,
      link,
      checkPolicy,
      keepPolicy: (policy) => writeMeta(runtimeRoot, { ...meta, egress: dataOf(policy) }),
      forget: async () => {
        await removeRuntimeFolder(runtimeRoot, id)
        live.delete(id)
      },
    })
    live.set(id, { sandbox, isOwn })
    return sandbox
  }

  const destroy = async (id: string): Promise<void> => live.get(id)?.sandbox.destroy() ?? destroyForeign(workshop, id)

  const close = async (): Promise<void> => {
    await Promise.allSettled(pending)
    await spares.close()
    // Those of other processes go on there.
    const own = [...live.values()].filter(({ isOwn }) => isOwn)
    const outcomes = await Promise.allSettled(own.map(({ sandbox }) => sandbox.destroy()))
    await Promise.all([egress.close(), backend.close?.()])
    const failure = outcomes.find((outcome) => outcome.status === 'rejected')
    if (failure !== undefined) throw failure.reason
  }
  /** Sandboxes that are being made: closing waits for them, so that none is left. */
  const pending = new Set<Promise<unknown>>()
  const during = async <T>(work: Promise<T>): Promise<T> => {
    pending.add(work)
    try {
      return await work
    } finally {
      pending.delete(work)
    }
  }

  return {
    id: `prv_${randomBytes(8).toString('hex')}`,
    name: backend.name,
    environment: backend.environment,
    capabilities: backend.capabilities,
    create: async (asked = {}) => {
      open()
      checkKnown('a sandbox', asked, CREATE_OPTIONS)
      const { egress: policy = defaultEgress } = asked
      checkPolicy(policy)
      checkOptions(backend, asked)
      return during(
        unlessAborted(ready(), asked.signal)
          .then(() => createSandbox(workshop, policy, asked))
          .then((made) => {
            spares.fill()
            return keep(made, true)
          }),
      )
    },
    attach: async (id) => {
      open()
      const known = live.get(id)?.sandbox
      if (known !== undefined) return known
      return during(
        ready()
          .then(() => attachSandbox(workshop, id))
          .then((made) => keep(made, made.isOwn)),
      )
    },
    list: async () =>
      (await knownSandboxes(backend, runtimeRoot)).flatMap(({ info, meta }) => (meta?.spare === true ? [] : [info])),
    reap: async ({ olderThanMs }) => {
      if (!(olderThanMs >= 0)) throw new TypeError('`olderThanMs` is 0 or more')
      const due = (await knownSandboxes(backend, runtimeRoot)).filter((known) => isDue(known, olderThanMs, Date.now()))
      const outcomes = await Promise.allSettled(due.map(({ info }) => destroy(info.id)))
      await reapGatewayFolders(runtimeRoot, olderThanMs)
      const failure = outcomes.find((outcome) => outcome.status === 'rejected')
      if (failure !== undefined) throw failure.reason
      return due.map(({ info }) => info.id)
    },
    [Symbol.asyncDispose]: () => (closing ??= close()),
  }
}

/** What is looked at goes on for the next one. */
async function unlessAborted(work: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return work
  // Whoever has given up hears of that alone.
  work.catch(() => undefined)
  signal.throwIfAborted()
  const ended = new AbortController()
  try {
    await Promise.race([work, once(signal, 'abort', { signal: ended.signal }).then(() => signal.throwIfAborted())])
  } finally {
    ended.abort()
  }
}

/** In this process: its `bind` is a function, and not where another one is to bind. */
function isGateway(gateway: NonNullable<SandboxProviderOptions['gateway']>): gateway is Gateway {
  return 'bind' in gateway && typeof gateway.bind === 'function'
}

function egressOf({ gateway = {} }: SandboxProviderOptions, runtimeRoot: string): Egress {
  if (isGateway(gateway)) return boundEgress(gateway)
  if ('url' in gateway) return remoteEgress(gateway)
  return 'admin' in gateway ? controlledEgress(gateway) : embeddedEgress(runtimeRoot, gateway)
}

const PROVIDER_OPTIONS: KnownOptions<SandboxProviderOptions> = {
  backend: true,
  gateway: true,
  defaultEgress: true,
  runtimeRoot: true,
  spares: true,
}
const CREATE_OPTIONS: KnownOptions<CreateSandboxOptions> = {
  egress: true,
  tenant: true,
  env: true,
  timeoutMs: true,
  memoryLimitMb: true,
  maxProcesses: true,
  labels: true,
  signal: true,
}

/** @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED` for a limit that the backend does not keep; TypeError for what is none */
function checkOptions(
  { name, capabilities }: Backend,
  { timeoutMs, memoryLimitMb, maxProcesses, labels = {} }: CreateSandboxOptions,
): void {
  const limits = [
    ['timeoutMs', timeoutMs, capabilities.timeToLive],
    ['memoryLimitMb', memoryLimitMb, capabilities.memoryLimit],
    ['maxProcesses', maxProcesses, capabilities.processLimit],
  ] as const
  for (const [option, value, isKept] of limits) {
    if (value === undefined) continue
    if (!Number.isSafeInteger(value) || value < 1) throw new TypeError(`\`${option}\` is a whole number, 1 or more`)
    if (!isKept)
      throw new SandboxError(
        'SALLYPORT_SANDBOX_NOT_SUPPORTED',
        `the backend \`${name}\` can't keep \`${option}\` on this machine; leave it out`,
      )
  }
  checkLabels(labels)
}

/** @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED` for a gateway that sandboxes of the backend can't be let in by */
function checkReach(backend: Backend, { grant, gives }: Egress): void {
  const credential = credentialOf(backend)
  if (credential !== undefined && grant === undefined) throw outOfReach(backend)
  if (gives?.(credential ?? 'token') !== false) return
  throw new SandboxError(
    'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    credential === 'handle'
      ? `sandboxes of the backend \`${backend.name}\` show the gateway a handle here, and its control API makes those: give \`gateway: { url, control }\``
      : `sandboxes of the backend \`${backend.name}\` show the gateway a token of yours: give \`gateway: { url, issuer, issuerKey }\``,
  )
}

function outOfReach({ name }: Backend): SandboxError {
  return new SandboxError(
    'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    `sandboxes of the backend \`${name}\` are elsewhere, and reach a gateway over the network alone: give \`gateway: { url, issuer, issuerKey, control }\``,
  )
}

function noSpares({ name }: Backend): SandboxError {
  return new SandboxError(
    'SALLYPORT_SANDBOX_NOT_SUPPORTED',
    `the backend \`${name}\` starts no sandboxes ahead; leave \`spares\` out`,
  )
}

function unenforced({ name }: Backend, { kind }: EgressPolicy): SandboxError {
  return new SandboxError(
    'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
    `the backend \`${name}\` stops nothing that goes round the gateway, so the policy \`${kind}\` would be a wish; use another backend, \`allow-all\`, or say \`unsafeUnenforced: true\``,
  )
}
