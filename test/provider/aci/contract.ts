/** Azure's descriptions of what the backend asks for, where they lie, and what a claim may hold besides: that is in no description. */
import fs from 'node:fs'
import path from 'node:path'
import { type Exchange, readSwagger } from '../swagger.ts'

const FOLDER = path.join(import.meta.dirname, '../../../../shared/contracts/azure')
const GROUPS = path.join(FOLDER, 'containerInstance-2024-05-01-preview.subset.json')
const POOLS = path.join(FOLDER, 'standbypool-2025-03-01.subset.json')
/** Azure's own example of a claim. */
export const EXAMPLE = path.join(FOLDER, 'example-ContainerGroupCreateOrUpdateStandbyPool-2025-09-01.json')

/** Printed where they are missing. */
export const NO_DESCRIPTION = [GROUPS, POOLS, EXAMPLE].every((file) => fs.existsSync(file)) ? undefined : `Azure's descriptions are not at ${FOLDER}: requests are not held to them` // prettier-ignore

/** What is wrong with a request, and with what the server of the tests answers itself. */
export function contractCheck(): (exchange: Exchange) => readonly string[] {
  if (NO_DESCRIPTION !== undefined) return () => []
  const [groups, pools] = [readSwagger(GROUPS), readSwagger(POOLS)]
  return (exchange) => [
    ...(exchange.path.includes('/Microsoft.StandbyPool/') ? pools : groups)(exchange),
    ...(exchange.query.has('api-version') ? [] : ['the query `api-version` is missing']),
    ...readOnlyNames(exchange.body, 'body'),
  ]
}

/** `readOnly` in the descriptions. */
const READ_ONLY = new Set(['provisioningState', 'isCreatedFromStandbyPool', 'instanceView', 'fqdn', 'id:top', 'name:top', 'type:top']) // prettier-ignore

function readOnlyNames(value: unknown, at: string): string[] {
  if (Array.isArray(value)) return value.flatMap((each, index) => readOnlyNames(each, `${at}[${index}]`))
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, each]) => [
    ...(READ_ONLY.has(name) || (at === 'body' && READ_ONLY.has(`${name}:top`)) ? [`${at}.${name} is read-only`] : []),
    ...readOnlyNames(each, `${at}.${name}`),
  ])
}

type Body = Readonly<Record<string, unknown>>

/** Undefined for a body that is no claim, or one as Azure takes it. */
export function claimFault({ properties }: { readonly properties?: Body }, container: string): string | undefined {
  if (properties?.['standbyPoolProfile'] === undefined) return undefined
  const containers = (properties['containers'] ?? []) as readonly { readonly name: string; readonly properties: Body }[]
  const others = [
    ...Object.keys(properties).filter((name) => !['containerGroupProfile', 'standbyPoolProfile', 'containers'].includes(name)), // prettier-ignore
    ...containers.flatMap((each) => Object.keys(each.properties).filter((name) => name !== 'configMap')),
  ]
  if (others.length > 0 || containers.length === 0)
    return 'ContainerGroup properties other than config map are not allowed'
  return containers.every(({ name }) => name === container) ? undefined : 'The container is not one of the container group profile' // prettier-ignore
}
