/** The OCSF schema, where it lies beside this repository: what is wrong with an event by it. */
import { existsSync, readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import path from 'node:path'

const FOLDER = path.join(import.meta.dirname, '../../../../../shared/contracts/ocsf')

/** Printed where the schema is missing. */
export const MISSING = existsSync(path.join(FOLDER, 'classes')) ? undefined : `the OCSF schema is not at ${FOLDER}`

interface Attribute {
  readonly type: string
  readonly requirement?: string
  readonly object_type?: string
  readonly is_array?: boolean
  readonly profiles?: readonly string[] | null
  readonly enum?: Readonly<Record<string, { readonly caption: string }>>
}

interface Shape {
  readonly attributes: Readonly<Record<string, Attribute>>
  readonly constraints?: { readonly at_least_one?: readonly string[] }
}

const CLASSES: Readonly<Record<number, string>> = { 0: 'base_event', 4001: 'network_activity', 4002: 'http_activity' }

/** The file of a class that the folder lacks; its own attributes, from the published schema of 3002, are in the test. */
export function ocsfFaults(
  event: Readonly<Record<string, unknown>>,
  extra: Readonly<Record<string, Attribute>> = {},
): readonly string[] {
  const name = CLASSES[Number(event['class_uid'])] ?? 'base_event'
  const shape = read('classes', name)
  if (shape === undefined) return [`no class ${name}`]
  const isKnown = name !== 'base_event' || event['class_uid'] === 0
  // The base event's own enumeration says nothing of a class that the folder lacks.
  const base = isKnown ? shape.attributes : withoutOwn(shape.attributes)
  return shapeFaults({ ...shape, attributes: { ...base, ...extra } }, event, '', profilesOf(event))
}

function withoutOwn(attributes: Shape['attributes']): Shape['attributes'] {
  const own = ['activity_id', 'class_uid', 'category_uid', 'type_uid']
  return Object.fromEntries(
    Object.entries(attributes).map(([name, attribute]) => {
      const { enum: _values, ...rest } = attribute
      return [name, own.includes(name) ? rest : attribute]
    }),
  )
}

function shapeFaults(
  { attributes, constraints }: Shape,
  value: Readonly<Record<string, unknown>>,
  at: string,
  profiles: readonly string[],
): readonly string[] {
  const unknown = Object.keys(value)
    .filter((name) => attributes[name] === undefined)
    .map((name) => `${at}${name}: unknown`)
  const some = constraints?.at_least_one
  const lacking =
    some !== undefined && !some.some((name) => value[name] !== undefined) ? [`${at}: none of ${some.join()}`] : []
  const faults = Object.entries(attributes).flatMap(([name, attribute]) => {
    const member = value[name]
    const here = `${at}${name}`
    if (member === undefined) {
      const applies =
        (attribute.profiles ?? []).length === 0 ||
        attribute.profiles?.some((profile) => profiles.includes(profile)) === true
      return attribute.requirement === 'required' && applies ? [`${here}: required`] : []
    }
    if (attribute.is_array === true)
      return Array.isArray(member)
        ? member.flatMap((item: unknown, index) => memberFaults(attribute, item, `${here}[${index}]`, profiles))
        : [`${here}: no array`]
    return memberFaults(attribute, member, here, profiles)
  })
  return [...unknown, ...lacking, ...faults]
}

function memberFaults(
  attribute: Attribute,
  member: unknown,
  at: string,
  profiles: readonly string[],
): readonly string[] {
  const { type, enum: values, object_type: object } = attribute
  if (values !== undefined && values[String(member)] === undefined)
    return [`${at}: ${String(member)} is not in the enumeration`]
  switch (type) {
    case 'integer_t':
    case 'long_t':
    case 'timestamp_t':
      return Number.isSafeInteger(member) ? [] : [`${at}: no integer`]
    case 'port_t':
      return Number.isInteger(member) && Number(member) >= 0 && Number(member) <= 65_535 ? [] : [`${at}: no port`]
    case 'boolean_t':
      return typeof member === 'boolean' ? [] : [`${at}: no boolean`]
    case 'ip_t':
      return typeof member === 'string' && isIP(member) !== 0 ? [] : [`${at}: no address`]
    case 'object_t': {
      if (typeof member !== 'object' || member === null || Array.isArray(member)) return [`${at}: no object`]
      const shape = object === undefined || object === 'object' ? undefined : read('objects', object)
      return shape === undefined ? [] : shapeFaults(shape, member as Record<string, unknown>, `${at}.`, profiles)
    }
    default:
      return typeof member === 'string' ? [] : [`${at}: no text`]
  }
}

function profilesOf(event: Readonly<Record<string, unknown>>): readonly string[] {
  const metadata = event['metadata']
  const profiles = typeof metadata === 'object' && metadata !== null && 'profiles' in metadata ? metadata.profiles : []
  return Array.isArray(profiles) ? profiles.map(String) : []
}

const known = new Map<string, Shape | undefined>()

/** Undefined for an object that the folder does not describe. */
function read(kind: string, name: string): Shape | undefined {
  const file = path.join(FOLDER, kind, `${name}.json`)
  if (!known.has(file)) {
    const shape = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Partial<Shape>) : {}
    known.set(file, shape.attributes === undefined ? undefined : (shape as Shape))
  }
  return known.get(file)
}
