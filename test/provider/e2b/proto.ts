/** A service as its `.proto` describes it, and whether messages in JSON hold to it. */
import { readFileSync } from 'node:fs'
import protobuf from 'protobufjs'

/** Requests and replies of each method; a fault each, none when they hold. */
export interface ProtoContract {
  readonly request: (method: string, message: unknown) => readonly string[]
  readonly reply: (method: string, message: unknown) => readonly string[]
  readonly streams: (method: string) => boolean
}

/** Reads it once. `service` with its package. */
export function readProto(file: string, service: string): ProtoContract {
  const known = new protobuf.Root()
  known.addJSON(protobuf.common.get('google/protobuf/timestamp.proto')?.nested ?? {})
  const { root } = protobuf.parse(readFileSync(file, 'utf8'), known)
  const { methods } = root.lookupService(service)
  const check = (side: 'requestType' | 'responseType') => (method: string, message: unknown) => {
    const found = methods[method]
    if (found === undefined) return [`${service} has no method ${method}`]
    return faultsOf(root.lookupType(`${service.split('.')[0] ?? ''}.${found[side]}`), message, side)
  }
  return {
    request: check('requestType'),
    reply: check('responseType'),
    streams: (method) => methods[method]?.responseStream === true,
  }
}

/** @see the JSON mapping of protobuf 3 */
function faultsOf(type: protobuf.Type, message: unknown, at: string): string[] {
  if (typeof message !== 'object' || message === null || Array.isArray(message)) return [`${at} is no object`]
  const faults: string[] = []
  for (const [name, value] of Object.entries(message)) {
    const field = type.fields[name]
    if (field === undefined) faults.push(`${at}.${name} is not in ${type.name}`)
    else faults.push(...fieldFaults(field.resolve(), value, `${at}.${name}`))
  }
  for (const { name, oneof } of type.oneofsArray) {
    const given = oneof.filter((each) => each in message)
    if (given.length > 1) faults.push(`${at} has more than one of ${name}`)
  }
  return faults
}

function fieldFaults(field: protobuf.Field, value: unknown, at: string): string[] {
  if (field instanceof protobuf.MapField) {
    if (typeof value !== 'object' || value === null) return [`${at} is no map`]
    return Object.entries(value).flatMap(([name, each]) => valueFaults(field, each, `${at}.${name}`))
  }
  if (!field.repeated) return valueFaults(field, value, at)
  return Array.isArray(value)
    ? value.flatMap((each, index) => valueFaults(field, each, `${at}[${index}]`))
    : [`${at} is no list`]
}

const INTEGERS: Readonly<Record<string, readonly [number, number]>> = {
  uint32: [0, 2 ** 32 - 1],
  int32: [-(2 ** 31), 2 ** 31 - 1],
  sint32: [-(2 ** 31), 2 ** 31 - 1],
}

function valueFaults({ type, resolvedType }: protobuf.Field, value: unknown, at: string): string[] {
  const wrong = [`${at} is no ${type}`]
  // In JSON a text.
  if (resolvedType?.fullName === '.google.protobuf.Timestamp')
    return typeof value === 'string' && !Number.isNaN(Date.parse(value)) ? [] : wrong
  if (resolvedType instanceof protobuf.Type) return faultsOf(resolvedType, value, at)
  if (resolvedType instanceof protobuf.Enum)
    return Object.keys(resolvedType.values).includes(String(value)) || Object.values(resolvedType.values).includes(value as number) ? [] : wrong // prettier-ignore
  const range = INTEGERS[type]
  if (range !== undefined)
    return typeof value === 'number' && Number.isInteger(value) && value >= range[0] && value <= range[1] ? [] : wrong
  switch (type) {
    case 'string':
      return typeof value === 'string' && value.isWellFormed() ? [] : wrong
    case 'bool':
      return typeof value === 'boolean' ? [] : wrong
    case 'bytes':
      return typeof value === 'string' && /^[A-Za-z0-9+/_-]*={0,2}$/.test(value) ? [] : wrong
    case 'int64':
      return /^-?\d+$/.test(String(value)) ? [] : wrong
    default:
      return [`${at}: ${type} is not known here`]
  }
}
