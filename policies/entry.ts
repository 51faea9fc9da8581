/** What does one entry of `allowedHosts` or `deniedHosts` mean? Refused with the right form rather than guessed at. */
import { parseAddress, parseRange, unmapped, type AddressRange, type IpAddress } from './address.ts'
import { parseHostName, type HostName } from './host.ts'
import { faulty, parsed, quoted, type Fault, type Parsed } from './parsed.ts'
import { DEFAULT_PORTS, parsePorts, portsText, type PortRange } from './ports.ts'
import { findPreset, presetNames } from './presets/index.ts'
import { isPublicSuffix } from './public-suffix.ts'

/** What every entry but a preset has. */
interface PortedEntry {
  /** Canonical: what the audit shows as `rule`. */
  readonly text: string
  /** As written; without any, 80 and 443. */
  readonly ports: readonly PortRange[]
  /** Whether ports were written; a denying entry without covers every port. */
  readonly hasPorts: boolean
}

/** An entry that matches by itself. */
export type HostEntry =
  | ({ readonly kind: 'exact'; readonly host: HostName } & PortedEntry)
  | ({ readonly kind: 'wildcard'; readonly below: HostName } & PortedEntry)
  | ({ readonly kind: 'address'; readonly address: IpAddress } & PortedEntry)
  | ({ readonly kind: 'range'; readonly range: AddressRange } & PortedEntry)

/** `@name`: a set that ships with the product, the operator's own, or the machine's. */
export interface PresetEntry {
  readonly kind: 'preset'
  readonly name: string
  /** `@` and the name. */
  readonly text: string
  readonly entries: readonly HostEntry[]
}

/** An entry of a host list. */
export type Entry = HostEntry | PresetEntry

/** Named sets beside the shipped ones, by name without `@`; see `parseSets`. */
export type EntrySets = ReadonlyMap<string, readonly HostEntry[]>

/** Where an entry was written, and which sets it may name. */
export interface EntryContext {
  /** Unicode names are for files only. */
  readonly from: 'file' | 'token'
  readonly sets?: EntrySets
}

/** Room for the longest name, a wildcard and a port range, and for a Unicode name. */
const MAX_ENTRY = 512

/** Enough for a scheme, user information, a path, a port and a spelling that are all wrong at once. */
const MAX_HINT_DEPTH = 8

/**
 * Reads an entry. Faults: `empty`, `space`, `length`, `scheme`, `userinfo`, `path`, `port`, `wildcard_form`,
 * `wildcard_too_wide`, `leading_dot`, `empty_label`, `character`, `unicode`, `a_label`, `address`, `preset`; the message
 * quotes the entry (without user information) and says the right form.
 */
export function parseEntry(text: string, context: EntryContext): Parsed<Entry> {
  const entry = text.startsWith('@') ? readPreset(text, context) : readHostEntry(text, context)
  if (entry.ok) return entry
  const { code, message, hint } = entry.fault
  const right = hint === undefined ? '' : `; write ${quoted(hint)}`
  return faulty(code, `${quoted(withoutUserInfo(text))} is refused: ${message}${right}`, hint)
}

function readPreset(text: string, { from, sets }: EntryContext): Parsed<PresetEntry> {
  const [name = '', ...rest] = text.slice(1).split(':')
  const entries = sets?.get(name) ?? shippedEntries(name)
  if (entries === undefined) {
    const isMachines = name === 'npm' || name === 'apt'
    if (isMachines) return faulty('preset', 'this set is read from the machine that loads a policy, and was not here')
    // Whoever writes a token learns nothing of the operator's own sets.
    const known = [...presetNames(), ...(from === 'file' ? (sets?.keys() ?? []) : [])]
    return faulty('preset', `no set has this name; there are ${known.join(', ')}`)
  }
  if (rest.length > 0) return faulty('preset', 'a set takes no port', `@${name}`)
  return parsed({ kind: 'preset', name, text, entries })
}

/** Read once each; a fault in one is a fault of this package, and tests read every one. */
const shipped = new Map<string, readonly HostEntry[]>()

function shippedEntries(name: string): readonly HostEntry[] | undefined {
  const preset = findPreset(name)
  if (preset === undefined || shipped.has(name)) return shipped.get(name)
  const entries = preset.entries.map((text) => {
    const entry = readHostEntry(text, { from: 'file' })
    if (!entry.ok) throw new TypeError(`${text}: ${entry.fault.message}`)
    return entry.value
  })
  shipped.set(name, entries)
  return entries
}

/** `depth`: how many faults of a longer entry were already cut off in search of a hint. */
function readHostEntry(text: string, context: EntryContext, depth = 0): Parsed<HostEntry> {
  const suggest = (candidate: string): string | undefined => {
    if (depth === MAX_HINT_DEPTH) return undefined
    const entry = readHostEntry(candidate, context, depth + 1)
    return entry.ok ? entry.value.text : entry.fault.hint
  }
  if (text.length > MAX_ENTRY) return faulty('length', `an entry is at most ${MAX_ENTRY} characters long`)
  const trimmed = text.trim()
  if (trimmed === '') return faulty('empty', 'an entry must not be empty')
  if (trimmed !== text) return faulty('space', 'an entry has no spaces', suggest(trimmed))
  if (/\s/.test(text)) return faulty('space', 'an entry has no spaces')

  const scheme = /^[a-z][a-z0-9+.-]*:\/\//i.exec(text)
  if (scheme !== null) return faulty('scheme', 'an entry has no scheme', suggest(text.slice(scheme[0].length)))
  const at = text.lastIndexOf('@')
  if (at >= 0) return faulty('userinfo', 'an entry has no user information', suggest(text.slice(at + 1)))

  const slash = text.search(/[/?#]/)
  if (slash >= 0) {
    const base = text.slice(0, slash)
    if (text[slash] === '/' && isAddressLike(base)) return readRange(text, slash, suggest)
    return faulty('path', 'an entry has no path', suggest(base))
  }
  if (text.startsWith('[')) return readBracketed(text, suggest)
  if (text.includes(':') && parseAddress(text).ok) {
    return faulty('address', 'an IPv6 address stands in brackets', suggest(`[${text}]`))
  }
  const colon = text.indexOf(':')
  const host = colon < 0 ? text : text.slice(0, colon)
  const tail = colon < 0 ? '' : text.slice(colon)
  return withPorts(readHost(host, tail, context, suggest), tail, suggest)
}

type Suggest = (candidate: string) => string | undefined

/** What an entry is before its ports are known; `text` without them. */
type Bare =
  | { readonly kind: 'exact'; readonly host: HostName; readonly text: string }
  | { readonly kind: 'wildcard'; readonly below: HostName; readonly text: string }
  | { readonly kind: 'address'; readonly address: IpAddress; readonly text: string }
  | { readonly kind: 'range'; readonly range: AddressRange; readonly text: string }

function readHost(host: string, tail: string, { from }: EntryContext, suggest: Suggest): Parsed<Bare> {
  if (host.includes('*')) return readWildcard(host, tail, from, suggest)
  if (host.startsWith('.')) return faulty('leading_dot', 'a name has no leading dot', suggest(`*${host}${tail}`))
  const address = parseAddress(host)
  if (address.ok) return parsed({ kind: 'address', address: address.value, text: address.value.text })
  const name = parseHostName(host, { unicode: from === 'file' })
  if (name.ok) return parsed({ kind: 'exact', host: name.value, text: name.value })
  if (name.fault.code === 'address') {
    const likely = likelyIpv4(host)
    return faulty('address', name.fault.message, likely === undefined ? undefined : suggest(likely + tail))
  }
  return withAsciiHint(name.fault, host, (ascii) => suggest(ascii + tail))
}

function readWildcard(host: string, tail: string, from: 'file' | 'token', suggest: Suggest): Parsed<Bare> {
  if (host === '*') return faulty('wildcard_too_wide', 'a star alone covers everything')
  const below = host.slice(2)
  if (!host.startsWith('*.') || below.includes('*')) {
    const afterLastStar = host.slice(host.lastIndexOf('*') + 1).replace(/^\./, '')
    const hint = afterLastStar === '' ? undefined : suggest(`*.${afterLastStar}${tail}`)
    return faulty('wildcard_form', 'a star is the whole first label and stands once', hint)
  }
  const name = parseHostName(below, { unicode: from === 'file' })
  if (!name.ok) return withAsciiHint(name.fault, below, (ascii) => suggest(`*.${ascii}${tail}`))
  if (isPublicSuffix(name.value)) {
    return faulty('wildcard_too_wide', 'below this name anybody can register; name the domain that is meant')
  }
  return parsed({ kind: 'wildcard', below: name.value, text: `*.${name.value}` })
}

/** `[address]` or `[address]:ports`. */
function readBracketed(text: string, suggest: Suggest): Parsed<HostEntry> {
  const close = text.indexOf(']')
  const inside = text.slice(1, close)
  const tail = text.slice(close + 1)
  if (close < 0 || (tail !== '' && !tail.startsWith(':'))) return faulty('address', 'write `[2001:db8::7]:443`')
  const address = parseAddress(inside)
  if (!address.ok || address.value.family === 4) {
    return faulty(
      'address',
      'brackets are for IPv6 addresses',
      inside.startsWith('[') ? undefined : suggest(inside + tail),
    )
  }
  const canonical = unmapped(address.value)?.text ?? `[${address.value.text}]`
  if (canonical !== `[${inside}]`) return faulty('address', 'not in canonical form', suggest(canonical + tail))
  return withPorts(parsed({ kind: 'address', address: address.value, text: canonical }), tail, suggest)
}

/** `base/length` or `base/length:ports`. */
function readRange(text: string, slash: number, suggest: Suggest): Parsed<HostEntry> {
  const colon = text.indexOf(':', slash)
  const bare = colon < 0 ? text : text.slice(0, colon)
  const tail = colon < 0 ? '' : text.slice(colon)
  if (bare.startsWith('['))
    return faulty('address', 'a range has no brackets', suggest(bare.replace(/[[\]]/g, '') + tail))
  const range = parseRange(bare)
  if (range.ok) return withPorts(parsed({ kind: 'range', range: range.value, text: range.value.text }), tail, suggest)
  const { message, hint } = range.fault
  return faulty('address', message, hint === undefined ? undefined : suggest(hint + tail))
}

/** `tail` is empty, or a colon and the ports. */
function withPorts(bare: Parsed<Bare>, tail: string, suggest: Suggest): Parsed<HostEntry> {
  if (!bare.ok) return bare
  if (tail === '') return parsed({ ...bare.value, ports: DEFAULT_PORTS, hasPorts: false })
  const ports = parsePorts(tail.slice(1))
  if (ports.ok) {
    return parsed({
      ...bare.value,
      text: `${bare.value.text}:${portsText(ports.value)}`,
      ports: ports.value,
      hasPorts: true,
    })
  }
  const { code, message, hint } = ports.fault
  return faulty(code, message, hint === undefined ? undefined : suggest(`${bare.value.text}:${hint}`))
}

function isAddressLike(base: string): boolean {
  return /^[0-9.]+$/.test(base) || parseAddress(base.replace(/^\[(.*)\]$/, '$1')).ok
}

/** In a token a Unicode name is refused; its A-labels are the hint. */
function withAsciiHint(fault: Fault, name: string, suggest: Suggest): Parsed<never> {
  const ascii = fault.code === 'unicode' ? parseHostName(name, { unicode: true }) : undefined
  return faulty(fault.code, fault.message, ascii?.ok === true ? suggest(ascii.value) : undefined)
}

/** For the hint only: the address that a resolver would make of it, where all resolvers agree. */
function likelyIpv4(text: string): string | undefined {
  if (/^(?:0x[0-9a-f]{1,8}|[1-9][0-9]{0,9})$/i.test(text)) {
    const value = Number(text)
    return value > 0xffff_ffff ? undefined : [24, 16, 8, 0].map((shift) => (value >>> shift) & 0xff).join('.')
  }
  const octets = text.replace(/\.$/, '').split('.')
  const areClear = octets.every(
    (octet) => /^[0-9]{1,4}$/.test(octet) && Number(octet) < (octet.startsWith('0') ? 8 : 256),
  )
  return areClear && octets.length === 4 ? octets.map(Number).join('.') : undefined
}

function withoutUserInfo(text: string): string {
  return text.startsWith('@') ? text : text.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, '$1…@')
}
