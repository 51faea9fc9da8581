/** Backends on someone else's machines, as the command line finds them: by variables, since no argument should hold a token. */
import type { Environment } from '../../proxy/config/environment.ts'
import type { Backend } from '../backend.ts'
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

function notSetUp(name: string, what: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_BACKEND_MISSING', `the backend \`${name}\` is not set up: set ${what}`)
}
