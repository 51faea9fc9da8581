/** What the checks work with: a provider behind a gateway of its own, an origin on loopback, and a sandbox that checks share. */
import { randomInt } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import type { EgressPolicy } from '../../policies/index.ts'
import type { CreateSandboxOptions, Sandbox, SandboxProvider } from '../sandbox.ts'
import type { ConformanceSubject } from './check.ts'
import { type Origin, startOrigin } from './origin.ts'
import { startReachableGateway } from './reachable-gateway.ts'

/** Names that the gateway of the checks resolves to the origin. */
export const ALLOWED_HOST = 'allowed.sallyport.test'
/** Nothing lets it out at first. */
export const REFUSED_HOST = 'refused.sallyport.test'

/** One subject under test. */
export interface Bench {
  readonly subject: ConformanceSubject
  readonly provider: SandboxProvider
  readonly origin: Origin
  /** Lets out {@link ALLOWED_HOST} on the origin's port. */
  readonly policy: EgressPolicy
  /** The shared sandbox; made anew when a check destroyed it. */
  readonly sandbox: () => Promise<Sandbox>
  /** A sandbox for one check, gone when `use` is through. */
  readonly withSandbox: <T>(options: CreateSandboxOptions, use: (sandbox: Sandbox) => Promise<T>) => Promise<T>
  /** Another provider over the same sandboxes. */
  readonly anotherProvider: () => SandboxProvider
  readonly close: () => Promise<void>
}

/** Starts an origin; the provider starts with the first sandbox. */
export async function openBench(subject: ConformanceSubject): Promise<Bench> {
  await mkdir(subject.runtimeRoot, { recursive: true, mode: 0o700 })
  const origin = await (subject.transparentEgress === true ? startOrigin(ownLoopback(), 80) : startOrigin())
  const policy: EgressPolicy = { kind: 'static', allowedHosts: [`${ALLOWED_HOST}:${origin.port}`] }
  const set = {
    config: {
      network: {
        allowPrivate: ['127.0.0.0/8'],
        hosts: { [ALLOWED_HOST]: [origin.host], [REFUSED_HOST]: [origin.host] },
      },
      log: { level: 'silent' as const },
    },
    machineSets: { sets: { npm: [], apt: [] }, notes: [] },
  }
  const reachable =
    subject.gatewayAddress === undefined ? undefined : await startReachableGateway(subject.gatewayAddress, set)
  const gateway = (subject.transparentEgress === true ? reachable?.forHandles : reachable?.remote) ?? set
  const make = (): SandboxProvider => subject.createProvider({ defaultEgress: policy, gateway })
  const provider = make()
  const others: SandboxProvider[] = []
  let shared: Promise<Sandbox> | undefined
  return {
    subject,
    provider,
    origin,
    policy,
    sandbox: async () => {
      const present = await shared?.catch(() => undefined)
      if (present !== undefined && present.status !== 'destroyed') return present
      return (shared = provider.create())
    },
    withSandbox: async (options, use) => {
      const sandbox = await provider.create(options)
      try {
        return await use(sandbox)
      } finally {
        await sandbox.destroy()
      }
    },
    anotherProvider: () => {
      const other = make()
      others.push(other)
      return other
    },
    close: async () => {
      await Promise.all([provider, ...others].map((each) => each[Symbol.asyncDispose]()))
      await reachable?.close()
      await origin.close()
    },
  }
}

/** One on which nothing else listens at the ports that everybody uses. */
function ownLoopback(): string {
  return `127.80.${randomInt(256)}.${randomInt(1, 255)}`
}
