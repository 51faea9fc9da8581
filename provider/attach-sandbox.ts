/** Reaches a sandbox that another process made, and goes on with its way out when that process is gone. */
import type { EgressPolicy } from '../policies/index.ts'
import { clientOf, type MadeSandbox, openGrant, takerOf, type Workshop } from './create-sandbox.ts'
import { credentialOf, type StartedSandbox } from './backend.ts'
import type { EgressLink } from './egress/egress.ts'
import { rm } from 'node:fs/promises'
import { ownerOfThisProcess, stateOfOwner } from './owner.ts'
import { claim, pathsOf, readMeta, readWorkerToken, type SandboxMeta, unclaim, writeMeta } from './runtime-folder.ts'
import { SandboxError } from './sandbox-error.ts'
import type { WorkerClient } from './worker-client.ts'

/**
 * While the other process lives, the way out stays with it. When it is gone, this process takes over with the policy that was last in force; a policy that
 * was the other process's own code can't be had, and becomes `deny-all` until `setEgress` says otherwise.
 * @throws SandboxError `SALLYPORT_SANDBOX_NOT_FOUND`; `SALLYPORT_SANDBOX_CONNECTION_LOST` when its worker does not answer
 */
export async function attachSandbox(
  workshop: Workshop,
  id: string,
): Promise<MadeSandbox & { readonly isOwn: boolean }> {
  const { backend, runtimeRoot } = workshop
  const meta = await readMeta(runtimeRoot, id)
  if (meta?.backend !== backend.name || meta.spare === true)
    throw notFound(`there is no sandbox \`${id.slice(0, 64)}\` of the backend \`${backend.name}\``)
  const started = await backend.attach(id)
  if (started === undefined) throw notFound(`the sandbox \`${id}\` has ended; \`reap\` removes what is left of it`)
  const client = clientOf(workshop, started, await readWorkerToken(runtimeRoot, id))
  await client.health()
  const isOrphan = (await stateOfOwner(meta.owner)) === 'gone'
  if (!isOrphan || !(await claim(runtimeRoot, meta)))
    return { meta, started, client, link: foreignLink(runtimeRoot, id), isOwn: false }
  try {
    return { ...(await adopt(workshop, meta, started, client)), started, client, isOwn: true }
  } catch (error) {
    await unclaim(runtimeRoot, meta)
    throw error
  }
}

async function adopt(
  workshop: Workshop,
  meta: SandboxMeta,
  started: StartedSandbox,
  client: WorkerClient,
): Promise<Pick<MadeSandbox, 'meta' | 'link'>> {
  const { egress, backend, runtimeRoot } = workshop
  const policy: EgressPolicy = meta.egress ?? { kind: 'deny-all' }
  const { id, tenant } = meta
  const open = async (): Promise<EgressLink> => {
    if (credentialOf(backend) === undefined)
      return egress.open({ sandbox: id, tenant, policy, socketPath: pathsOf(runtimeRoot, id).gatewaySocket })
    const grant = await openGrant(workshop, meta, policy)
    await grant.begin(takerOf(started, client))
    return grant
  }
  const link = await open()
  const owned = { ...meta, owner: ownerOfThisProcess() }
  try {
    await writeMeta(runtimeRoot, owned)
  } catch (error) {
    await link.close()
    throw error
  }
  return { meta: owned, link }
}

/** The way out of a sandbox whose gateway is in another process: it can be taken away, and nothing else. */
function foreignLink(runtimeRoot: string, id: string): EgressLink {
  return {
    setPolicy: () =>
      Promise.reject(
        new SandboxError(
          'SALLYPORT_SANDBOX_NOT_SUPPORTED',
          `the way out of \`${id}\` is with the process that made it; only there its policy can be changed`,
        ),
      ),
    close: () => rm(pathsOf(runtimeRoot, id).gatewaySocket, { force: true }),
  }
}

function notFound(message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_NOT_FOUND', message)
}
