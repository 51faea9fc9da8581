/** Sandboxes as container groups of Azure, claimed from a standby pool or made cold. What stops a packet that goes round the gateway is the operator's subnet: it is tried from inside. */
import { randomBytes } from 'node:crypto'
import type { Backend, StartedSandbox } from '../backend.ts'
import type { EgressGrant } from '../egress/egress.ts'
import { isSandboxId } from '../runtime-folder.ts'
import type { SandboxCapabilities, SandboxInfo } from '../sandbox.ts'
import { createWorkerClient } from '../worker-client.ts'
import { type AciStandbyPoolOptions, type ResolvedAciOptions, resolveAciOptions } from './aci/aci-options.ts'
import { createArm, idOf } from './aci/arm.ts'
import { claimGroup } from './aci/claim-group.ts'
import { groupBody } from './aci/group-body.ts'
import { groupNameOf, infoOfGroup, tagsOf } from './aci/group-tags.ts'
import { untilWorkerAnswers, whyEnded } from './aci/reach-worker.ts'
import { removeGroup } from './aci/remove-group.ts'
import { untilGroupEnded } from './aci/watch-group.ts'
import { INSIDE_USER } from './inside.ts'
import { PlatformError } from './platform/platform-error.ts'
import { workerLink } from './platform/worker-link.ts'
import { afterMs } from './time-to-live.ts'

/** See {@link AciStandbyPoolOptions}. */
export type AciBackendOptions = AciStandbyPoolOptions

/** Makes the backend; it connects to nothing yet. @throws TypeError for a caller's mistake; SandboxError for folders that can't be had */
export function createAciStandbyPoolBackend(given: AciBackendOptions): Backend {
  const options = resolveAciOptions(given)
  const { namePrefix, folders, directTargets, workerPort } = options
  const arm = createArm(options)
  const rootDir = folders[0]?.path ?? '/'

  const started = (name: string, address: string, timeoutMs?: number): StartedSandbox => {
    const connect = workerLink(() => address, workerPort)
    let isStopped = false
    let stopping: Promise<void> | undefined
    const stop = (): Promise<void> => {
      isStopped = true
      clock?.cancel()
      return (stopping ??= removeGroup(arm, options, name).catch((error: unknown) => {
        // Whoever asks again may be luckier.
        stopping = undefined
        throw error
      }))
    }
    // The worker has this clock too; but a command may have stopped the worker, and its group is still to be taken away.
    const clock = timeoutMs === undefined ? undefined : afterMs(timeoutMs, () => void stop().catch(() => undefined))
    const ended = untilGroupEnded(arm, name, connect, () => isStopped)
    return { rootDir, connect, directTargets, announced: true, ended, stop }
  }

  return {
    name: 'aci-standby-pool',
    environment: 'linux-namespace',
    capabilities: capabilitiesOf(options),
    egress: 'token',
    undoBudgetMs: options.removeTimeoutMs + 10_000,

    check: async () => {
      if (options.pool !== undefined) checkPool(options, await arm.getPool())
      else await arm.listGroups()
    },

    start: async ({ id, grant, labels, timeoutMs, memoryLimitMb, workerToken, env, signal, undo }) => {
      const name = groupNameOf(namePrefix, id)
      // What is in a configMap can be read by whoever may read the group. So this bearer is good until the worker has answered, and no other secret is in it.
      const firstBearer = randomBytes(32).toString('base64url')
      const settings = JSON.stringify(settingsOf(options, { firstBearer, grant, timeoutMs }))
      const tags = tagsOf({ id, rootDir, labels })
      const body = groupBody(options, { settings, tags, memoryLimitMb })
      undo('container group', () => removeGroup(arm, options, name))
      const { address, isPublic } = await claimGroup(arm, options, {
        name,
        tags,
        signal,
        body: { ...body, secrets: [...body.secrets, firstBearer] },
      })
      if (isPublic && !options.unsafePublicAddress)
        throw new PlatformError('network_unsafe', `the container group \`${name}\` has a public address, at which anybody may knock: give the pool a subnet (\`subnetIds\`), or put up with it by \`unsafePublicAddress: true\``) // prettier-ignore
      if (options.tagging === 'update') await arm.tagGroup(name, tags, signal)
      const first = createWorkerClient({ connect: workerLink(() => address, workerPort), token: firstBearer })
      await untilWorkerAnswers({ arm, name, address, client: first, signal }, options)
      await first.configure({ token: workerToken, env: { ...CHILD_ENVIRONMENT, HOME: rootDir, ...env } })
      return started(name, address, timeoutMs)
    },

    list: async (): Promise<readonly SandboxInfo[]> =>
      (await arm.listGroups()).flatMap((group) => infoOfGroup(namePrefix, group) ?? []),

    attach: async (id): Promise<StartedSandbox | undefined> => {
      if (!isSandboxId(id)) return undefined
      const name = groupNameOf(namePrefix, id)
      const group = (await arm.getGroup(name))?.group
      if (group === undefined) return undefined
      const address = group.properties.ipAddress?.ip
      if (whyEnded(group) === undefined && address !== undefined) return started(name, address)
      await removeGroup(arm, options, name)
      return undefined
    },

    close: () => {
      arm.close()
      return Promise.resolve()
    },
  }
}

const CHILD_ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  USER: INSIDE_USER.name,
  LOGNAME: INSIDE_USER.name,
  LANG: 'C.UTF-8',
  TMPDIR: '/tmp',
}

interface SettingsRequest {
  readonly firstBearer: string
  readonly grant: EgressGrant | undefined
  readonly timeoutMs: number | undefined
}

/** For the worker. Neither its lasting bearer nor a token nor a variable of the caller's: those follow over the connection to it. */
function settingsOf(
  { folders, workerPort }: ResolvedAciOptions,
  { firstBearer, grant, timeoutMs }: SettingsRequest,
): object {
  // Said earlier to whoever made the provider.
  if (grant === undefined) throw new TypeError('container groups reach a gateway over the network alone')
  return {
    token: firstBearer,
    listen: { host: '0.0.0.0', port: workerPort },
    roots: folders.map(({ path, writable }) => ({ path, writable })),
    gateway: {
      host: '127.0.0.1',
      port: 3128,
      url: grant.gateway.href,
      ...(grant.ca !== undefined && { ca: grant.ca }),
    },
    ...(timeoutMs !== undefined && { timeToLiveMs: timeoutMs }),
    // Last: the entry of the image knows by it that the file is all there.
    whole: true,
  }
}

/** @throws PlatformError for a pool from which no sandbox that is safe can come */
function checkPool(
  options: ResolvedAciOptions,
  { properties }: Awaited<ReturnType<ReturnType<typeof createArm>['getPool']>>,
): void {
  const { containerGroupProfile, subnetIds } = properties.containerGroupProperties
  const { pool } = options
  if (pool === undefined) return
  const expected = idOf(pool.profile, 'Microsoft.ContainerInstance/containerGroupProfiles', options)
  if (containerGroupProfile.id.toLowerCase() !== expected.toLowerCase())
    throw new PlatformError('setup_unusable', `the standby pool \`${pool.name}\` is of another profile than \`${pool.profile}\`: a claim would find nothing in it`) // prettier-ignore
  if ((subnetIds ?? []).length === 0 && !options.unsafePublicAddress)
    throw new PlatformError('network_unsafe', `the standby pool \`${pool.name}\` has no subnet, so that its instances have public addresses: make it with one (deploy/azure)`) // prettier-ignore
}

function capabilitiesOf({ pool, unsafePublicAddress }: ResolvedAciOptions): SandboxCapabilities {
  return {
    enforcement: 'operator',
    streaming: true,
    spawn: true,
    runtimeEgressChange: true,
    memoryLimit: pool === undefined ? 'sandbox' : false,
    processLimit: false,
    timeToLive: true,
    attach: true,
    leftOpen: [
      'what goes round the gateway is stopped by the subnet’s routes and security group, which nobody here can set or read: connections to public addresses are tried from inside at the start, and later changes of the subnet are not noticed',
      'names may be resolved by Azure’s own name server, which carries questions out, unless the subnet or the profile’s dnsConfig forbids it',
      'whoever may read the resource group sees labels and addresses, and whoever may write in it is master of the sandboxes',
      'requests to the worker are not encrypted once more: the virtual network keeps them, and whoever is in it and may reach its port sees a door that wants a bearer',
      ...(unsafePublicAddress ? ['the worker may be knocked at from the internet, and its bearer travels there in the clear'] : []), // prettier-ignore
    ],
  }
}
