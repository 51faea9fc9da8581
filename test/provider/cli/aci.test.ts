/** `sallyport sandbox --backend aci-standby-pool` sees what other hosts made on Azure; without its variables it says which. */
import { expect, test, vi } from 'vitest'
import { aciStandbyPool, standbyPool } from '../../../provider/cli/elsewhere-backends.ts'
import { newSandboxId } from '../../../provider/runtime-folder.ts'
import { POOL, PROFILE, RESOURCE_GROUP, startArmServer, SUBSCRIPTION } from '../aci/arm-server.ts'

vi.setConfig({ testTimeout: 60_000 })

test('the variables that are missing are named', async () => {
  await expect(aciStandbyPool({})).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_BACKEND_MISSING', message: expect.stringContaining('SALLYPORT_ACI_POOL') as string }) // prettier-ignore
})

test('groups are found by their names, and the pool is looked into, under the identity of the environment', async () => {
  const { startTokenEndpoint } = await import('../aci/token-endpoint.ts')
  const tokens = await startTokenEndpoint()
  const azure = await startArmServer({ isKnown: (token) => tokens.given.has(token), ready: 2 })
  for (const [name, value] of Object.entries({ ...tokens.environment, AZURE_TOKEN_CREDENTIALS: 'ManagedIdentityCredential' })) vi.stubEnv(name, value) // prettier-ignore
  const variables = { AZURE_SUBSCRIPTION_ID: SUBSCRIPTION, SALLYPORT_ACI_RESOURCE_GROUP: RESOURCE_GROUP, SALLYPORT_ACI_LOCATION: 'westeurope', SALLYPORT_ACI_POOL: POOL, SALLYPORT_ACI_PROFILE: PROFILE, SALLYPORT_ACI_ARM: azure.url } // prettier-ignore
  const id = newSandboxId()
  const name = `sallyport-${id.replace('_', '-')}`
  azure.groups.set(name, { name, body: { location: 'westeurope', properties: { containers: [] } }, tags: {}, state: 'Succeeded', isFromPool: true, machine: undefined, address: '127.0.0.1' }) // prettier-ignore
  const backend = await aciStandbyPool(variables)
  expect((await backend.list()).map((info) => info.id)).toEqual([id])
  expect(await standbyPool(variables)).toMatchObject({ pool: POOL, running: 2, capacity: 5 })
  await backend.close?.()
  await azure.close()
  await tokens.close()
  vi.unstubAllEnvs()
})
