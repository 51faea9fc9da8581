/** The template for Azure says what the backend expects, and what it says of container groups and pools holds to Azure's descriptions. */
import fs from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { contractCheck, NO_DESCRIPTION } from '../provider/aci/contract.ts'
import { readBicep } from './bicep.ts'

if (NO_DESCRIPTION !== undefined) console.log(NO_DESCRIPTION)
const text = fs.readFileSync(path.join(import.meta.dirname, '../../deploy/azure/main.bicep'), 'utf8')
const VALUES = { workerPort: 2024, gatewayPort: 3128, readyCapacity: 3, cpu: 1, 'json(memoryInGB)': 1.5 }
const resources = readBicep(text, VALUES)
const of = (type: string): readonly unknown[] =>
  resources.filter((each) => each.type.endsWith(`/${type}`)).map(({ body }) => body)
const SCOPE = '/subscriptions/s/resourceGroups/r/providers'

test('holds to the descriptions, the profile as a group of its kind', () => {
  const check = contractCheck()
  const put = (place: string, whole: unknown): readonly string[] => {
    const { name: _name, ...body } = whole as Readonly<Record<string, unknown>>
    return check({ method: 'PUT', path: `${SCOPE}/${place}`, query: new URLSearchParams({ 'api-version': 'x' }), body, status: 201 }) // prettier-ignore
  }
  const groups = [...of('containerGroups'), ...of('containerGroupProfiles')]
  expect(groups).toHaveLength(2)
  for (const group of groups) expect(put('Microsoft.ContainerInstance/containerGroups/x', group)).toEqual([])
  expect(
    of('standbyContainerGroupPools').flatMap((pool) => put('Microsoft.StandbyPool/standbyContainerGroupPools/x', pool)),
  ).toEqual([])
  if (NO_DESCRIPTION === undefined)
    expect(
      put('Microsoft.ContainerInstance/containerGroups/x', { properties: { containers: [], nonsense: 1 } }),
    ).not.toEqual([])
})

test('makes a profile that does not come back, behind a private address with the worker’s port', () => {
  expect(of('containerGroupProfiles')[0]).toMatchObject({
    properties: {
      restartPolicy: 'Never',
      ipAddress: { type: 'Private', ports: [{ protocol: 'TCP', port: 2024 }] },
    },
  })
})

test('lets a sandbox reach one port of the gateway and nothing else, and hosts alone reach a worker', () => {
  const [rules] = of('networkSecurityGroups') as readonly {
    readonly properties: {
      readonly securityRules: readonly {
        readonly name: string
        readonly properties: Readonly<Record<string, unknown>>
      }[]
    }
  }[]
  const all = rules?.properties.securityRules.map(({ properties }) => properties) ?? []
  for (const direction of ['Inbound', 'Outbound']) {
    const own = all
      .filter((rule) => rule['direction'] === direction)
      .sort((a, b) => Number(a['priority']) - Number(b['priority']))
    expect(own.map((rule) => rule['access'])).toEqual(['Allow', 'Deny'])
    // 4096 is the last one of ours, before those that Azure has itself, which let much through.
    expect(own[1]).toMatchObject({
      priority: 4096,
      protocol: '*',
      sourceAddressPrefix: '*',
      destinationAddressPrefix: '*',
      destinationPortRange: '*',
    })
  }
  expect(all.find((rule) => rule['access'] === 'Allow' && rule['direction'] === 'Outbound')).toMatchObject({
    protocol: 'Tcp',
    destinationAddressPrefix: 'gatewayRange',
    destinationPortRange: 'string(gatewayPort)',
  })
  expect(of('routeTables')[0]).toMatchObject({
    properties: {
      routes: [{ properties: { addressPrefix: '0.0.0.0/0', nextHopType: 'None' } }],
    },
  })
})

test('gives hosts no right but to container groups, and to look', () => {
  const [role] = of('roleDefinitions') as readonly {
    readonly properties: { readonly permissions: readonly { readonly actions: readonly string[] }[] }
  }[]
  const actions = role?.properties.permissions.flatMap((each) => each.actions) ?? []
  expect(actions.length).toBeGreaterThan(5)
  expect(
    actions.filter(
      (action) =>
        !/^Microsoft\.ContainerInstance\/containerGroups\/(read|write|delete)$|\/read$|subnets\/join\/action$/.test(
          action,
        ),
    ),
  ).toEqual([])
})
