/** Backends on someone else's machines, as the command line finds them: by variables, since no argument should hold a token. */
import type { Environment } from '../../proxy/config/environment.ts'
import type { Backend } from '../backend.ts'
import type { StandbyPoolHealth } from '../backends/aci/pool-health.ts'
import type { AciBackendOptions } from '../backends/aci-standby-pool.ts'
import { SandboxError } from '../sandbox-error.ts'

/** Machines of Fly, to be looked at. @throws SandboxError `SALLYPORT_SANDBOX_BACKEND_MISSING` that names the variables */
export async function flyMachines(environment: Environment): Promise<Backend> {
  const { FLY_API_TOKEN: apiToken, SALLYPORT_FLY_APP: app, SALLYPORT_FLY_API: apiUrl } = environment
  if (apiToken === undefined || app === undefined)
    throw notSetUp('fly-machines', 'FLY_API_TOKEN and SALLYPORT_FLY_APP, a token and the app of the sandboxes')
  const { createFlyMachinesBackend } = await import('../backends/fly-machines.ts')
  return createFlyMachinesBackend({ apiToken, app, image: 'none', ...(apiUrl !== undefined && { apiUrl }) })
}

/** Machines of E2B, likewise. @throws SandboxError `SALLYPORT_SANDBOX_BACKEND_MISSING` that names the variable */
export async function e2b(environment: Environment): Promise<Backend> {
  const { E2B_API_KEY: apiKey, E2B_DOMAIN: domain, E2B_API_URL: apiUrl, E2B_SANDBOX_URL: sandboxUrl } = environment
  if (apiKey === undefined) throw notSetUp('e2b', 'E2B_API_KEY, the key of the team')
  const { createE2bBackend } = await import('../backends/e2b.ts')
  return createE2bBackend({ apiKey, ...(domain !== undefined && { domain }), ...(apiUrl !== undefined && { apiUrl }), ...(sandboxUrl !== undefined && { sandboxUrl }) }) // prettier-ignore
}

/** Container groups of Azure, likewise. The identity is that of `DefaultAzureCredential`. @throws SandboxError `SALLYPORT_SANDBOX_BACKEND_MISSING` that names the variables */
export async function aciStandbyPool(environment: Environment): Promise<Backend> {
  const { createAciStandbyPoolBackend } = await import('../backends/aci-standby-pool.ts')
  return createAciStandbyPoolBackend(aciOptions(environment))
}

/** How full the pool is. @throws as {@link aciStandbyPool}; PlatformError */
export async function standbyPool(environment: Environment): Promise<StandbyPoolHealth> {
  return (await import('../backends/aci/pool-health.ts')).readStandbyPool(aciOptions(environment))
}

function aciOptions(environment: Environment): AciBackendOptions {
  const { AZURE_SUBSCRIPTION_ID: subscriptionId, SALLYPORT_ACI_RESOURCE_GROUP: resourceGroup, SALLYPORT_ACI_LOCATION: location, SALLYPORT_ACI_POOL: name, SALLYPORT_ACI_PROFILE: profile, SALLYPORT_ACI_CONTAINER: container, SALLYPORT_ACI_ARM: armEndpoint } = environment // prettier-ignore
  if (subscriptionId === undefined || resourceGroup === undefined || location === undefined || name === undefined || profile === undefined)
    throw notSetUp('aci-standby-pool', 'AZURE_SUBSCRIPTION_ID, SALLYPORT_ACI_RESOURCE_GROUP, SALLYPORT_ACI_LOCATION, SALLYPORT_ACI_POOL and SALLYPORT_ACI_PROFILE') // prettier-ignore
  return { subscriptionId, resourceGroup, location, pool: { name, profile, container: container ?? 'sandbox' }, ...(armEndpoint !== undefined && { armEndpoint }) } // prettier-ignore
}

function notSetUp(name: string, what: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_BACKEND_MISSING', `the backend \`${name}\` is not set up: set ${what}`)
}
