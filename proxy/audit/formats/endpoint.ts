/** Reads `address:port` as audit lines spell it. */
import { isIP } from 'node:net'

/** One side of a connection. */
export interface Endpoint {
  readonly ip?: string
  readonly port?: number
}

/** Of `client` and `dialled`: an IPv6 address is in brackets when a port follows; `unix`, or what is no address, has neither. */
export function parseEndpoint(text: string | undefined): Endpoint {
  if (text === undefined) return {}
  if (isIP(text) !== 0) return { ip: text }
  const match = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text)
  const ip = match?.[1] ?? match?.[2] ?? ''
  return match === null || isIP(ip) === 0 ? {} : { ip, port: Number(match[3]) }
}
