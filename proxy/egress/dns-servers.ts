/**
 * Asks DNS servers for the addresses of one full name: A and AAAA together, the next server when one fails or is slow. Caches and judges nothing.
 * The wire is c-ares' (`node:dns`), which checks id, question and sender of an answer, and asks again over TCP when it was cut. A channel lives for
 * one look-up: so every look-up has source ports of its own, and giving one up touches no other.
 */
import dns from 'node:dns'
import net from 'node:net'
import { raceStaggered } from './staggered.ts'

/** One address as it was answered, unparsed. */
export interface AddressRecord {
  readonly address: string
  /** Seconds; 0 or absent: not to be kept. */
  readonly ttl?: number
}

/** What became of one family's question. */
export type FamilyAnswer =
  | { readonly kind: 'addresses'; readonly records: readonly AddressRecord[] }
  /** The server says that there are none (NXDOMAIN or no data). */
  | { readonly kind: 'none' }
  /** The server could not say (SERVFAIL, REFUSED, rubbish, nobody there). */
  | { readonly kind: 'failed' }
  | { readonly kind: 'timeout' }

/** What one look-up gave, A before AAAA. */
export type Answers = readonly [FamilyAnswer, FamilyAnswer]

/** How to ask. */
export interface AskOptions {
  /** As `dns.setServers` takes them; asked in this order. */
  readonly servers: readonly string[]
  /** For all servers and retries together. */
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/** After one family has answered, how long the other is waited for: a broken server that drops AAAA must not stall every name. */
const OTHER_FAMILY_MS = 1_000
/** After which a silent server is joined by the next. */
const NEXT_SERVER_MS = 1_500

const TIMED_OUT: Answers = [{ kind: 'timeout' }, { kind: 'timeout' }]
const FAILED: Answers = [{ kind: 'failed' }, { kind: 'failed' }]

/** Asks for a name that has no trailing dot. @throws (rejects) the signal's reason when it aborts */
export async function askServers(name: string, options: AskOptions): Promise<Answers> {
  const { servers, timeoutMs, signal } = options
  const delayMs = Math.min(NEXT_SERVER_MS, timeoutMs / Math.max(servers.length, 1))
  const { winner, failures, timedOut } = await raceStaggered<string, Answers>(
    servers,
    (server, settle) => askServer(server, name, timeoutMs, settle),
    { delayMs, timeoutMs, signal, isWin: isConclusive },
  )
  return winner ?? (timedOut ? TIMED_OUT : (failures[0] ?? FAILED))
}

/**
 * Reads `address`, `address:port` or `[address]:port` into the form that `dns.setServers` takes.
 * @throws TypeError for anything else
 */
export function parseServer(text: string): string {
  const match = /^(?:\[([^\]]+)\]|([^:]+))(?::([0-9]{1,5}))?$/.exec(text)
  const address = net.isIPv6(text) ? text : (match?.[1] ?? match?.[2] ?? '')
  const port = net.isIPv6(text) ? 53 : Number(match?.[3] ?? 53)
  const bracketed = match?.[1] !== undefined && !net.isIPv6(text)
  const isAddress = bracketed ? net.isIPv6(address) : net.isIP(address) !== 0
  if (!isAddress || address.includes('%') || port < 1 || port > 65_535) {
    throw new TypeError(`\`${text}\` is no DNS server; write \`10.0.0.2\`, \`10.0.0.3:5353\` or \`[2001:db8::2]:53\``)
  }
  return net.isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`
}

/** The servers that the machine is configured for at this moment. */
export function systemServers(): readonly string[] {
  return new dns.Resolver().getServers()
}

function askServer(server: string, name: string, timeoutMs: number, settle: (answers: Answers) => void): () => void {
  // Four tries whose waits double: the last one ends about when the whole look-up does.
  const channel = new dns.Resolver({ timeout: Math.max(1, Math.ceil(timeoutMs / 8)), tries: 4 })
  channel.setServers([server])
  const answers: [FamilyAnswer, FamilyAnswer] = [{ kind: 'timeout' }, { kind: 'timeout' }]
  let missing = 2
  let otherFamily: NodeJS.Timeout | undefined
  // As a full name: c-ares applies no search list to these calls, and the dot says so to whoever reads the query.
  channel.resolve4(`${name}.`, { ttl: true }, (error, records) => answered(0, error, records))
  channel.resolve6(`${name}.`, { ttl: true }, (error, records) => answered(1, error, records))
  return giveUp

  function answered(family: 0 | 1, error: NodeJS.ErrnoException | null, records: readonly AddressRecord[]): void {
    answers[family] = error === null ? fromRecords(records) : fromError(error)
    missing--
    if (missing > 0 && answers[family].kind === 'addresses') otherFamily = setTimeout(finish, OTHER_FAMILY_MS)
    else if (missing === 0) finish()
  }

  function finish(): void {
    const found = answers
    giveUp()
    settle([...found])
  }

  function giveUp(): void {
    clearTimeout(otherFamily)
    channel.cancel()
  }
}

function fromRecords(records: readonly AddressRecord[]): FamilyAnswer {
  return records.length === 0 ? { kind: 'none' } : { kind: 'addresses', records }
}

function fromError(error: NodeJS.ErrnoException): FamilyAnswer {
  switch (error.code) {
    case dns.NOTFOUND:
    case dns.NODATA:
      return { kind: 'none' }
    case dns.TIMEOUT:
      return { kind: 'timeout' }
    default:
      return { kind: 'failed' }
  }
}

/** Whether another server need not be asked: there are addresses, or the name has none in either family. */
function isConclusive(answers: Answers): boolean {
  return answers.some((one) => one.kind === 'addresses') || answers.every((one) => one.kind === 'none')
}
