/** Which ports does an entry cover? */
import { faulty, parsed, type Parsed } from './parsed.ts'

/** Ports from `low` to `high`, both included. */
export interface PortRange {
  readonly low: number
  readonly high: number
}

/** What an allowing entry without a port covers. */
export const DEFAULT_PORTS: readonly PortRange[] = [
  { low: 80, high: 80 },
  { low: 443, high: 443 },
]

/** What a denying entry without a port covers, and `:*`. */
export const EVERY_PORT: readonly PortRange[] = [{ low: 1, high: 65_535 }]

/** Reads what stands behind the colon of an entry: `8443`, `8000-8100` or `*`. Fault: `port`, the right port as hint. */
export function parsePorts(text: string): Parsed<readonly PortRange[]> {
  if (text === '*') return parsed(EVERY_PORT)
  const [first = '', second, ...more] = text.split('-')
  const low = readPort(first)
  const high = second === undefined ? low : readPort(second)
  if (low === undefined || high === undefined || more.length > 0 || low > high) {
    return faulty('port', 'a port is `8443`, a range `8000-8100` or `*`, from 1 to 65535', rightPort(text))
  }
  return parsed([{ low, high }])
}

/** The canonical text of {@link parsePorts}. */
export function portsText(ports: readonly PortRange[]): string {
  return ports
    .map(({ low, high }) => (low === 1 && high === 65_535 ? '*' : low === high ? String(low) : `${low}-${high}`))
    .join(',')
}

/** Whether a port is among them. */
export function coversPort(ports: readonly PortRange[], port: number): boolean {
  return ports.some(({ low, high }) => low <= port && port <= high)
}

/** The port in decimal that begins at `start` and ends with the text: 1 to 65535, no sign, blank or leading zero. */
export function readPort(text: string, start = 0): number | undefined {
  if (text.length === start || text.length - start > 5 || text.charCodeAt(start) === 0x30) return undefined
  let port = 0
  for (let index = start; index < text.length; index += 1) {
    const digit = text.charCodeAt(index) - 0x30
    if (digit < 0 || digit > 9) return undefined
    port = 10 * port + digit
  }
  return port <= 65_535 ? port : undefined
}

/** For the hint only. */
function rightPort(text: string): string | undefined {
  if (text === 'http') return '80'
  if (text === 'https') return '443'
  const unpadded = text.replace(/^0+/, '')
  return readPort(unpadded) === undefined ? undefined : unpadded
}
