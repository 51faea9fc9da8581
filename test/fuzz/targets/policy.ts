/** Entries of a policy, the decision that they come to, and what `policy explain` says of it. */
import {
  compilePolicy,
  contains,
  decideAddresses,
  decideName,
  type Destination,
  type Entry,
  explain,
  type HostEntry,
  type IpAddress,
  type Layers,
  parseAddress,
  parseAuthority,
  parseEntry,
  parseNetworkRules,
  stillAllowed,
} from '../../../policies/index.ts'
import { hold, same, type Target } from '../target.ts'

/** An input is a list of lines: an entry that allows, `!` and one that denies, `?` and a destination, `=` and an address that its name has. */
const SEEDS = [
  ['*.example.com', '!x.example.com', '?api.example.com:443', '=203.0.113.7'],
  ['api.example.com:8000-8100', '203.0.113.0/24:443', '?203.0.113.9:443', '?api.example.com:8001', '=8.8.8.8'],
  ['[2001:db8::7]:443', '2606:4700::/32', '!10.0.0.0/8', '?[2606:4700::1]:443', '?[::ffff:10.0.0.1]:443', '=10.0.0.1'],
  ['@github', '@npm', 'bücher.example', '*.co.uk', '?github.com:443', '=140.82.112.3'],
  [
    'https://user:password@a.example/path',
    '*',
    '.example.com',
    '127.1',
    'a.example:*',
    '!a.example',
    '?a.example:22',
    '=64:ff9b::a00:1',
  ],
].map((lines) => Buffer.from(lines.join('\n')))
const WORDS = [
  '\n',
  '!',
  '?',
  '=',
  '*.',
  ':*',
  ':443',
  ':1-65535',
  '/24',
  '/0',
  '[',
  ']',
  '::',
  '@',
  '@github',
  'xn--',
  '.',
  '0x',
  '..',
  'http://',
  '\u00df',
  '\u3002',
  '127.0.0.1',
  '169.254.169.254',
  '.com',
]
const MOST_LINES = 64

const rules = parseNetworkRules({ allowPrivate: ['10.1.0.0/16'], nat64Prefixes: [] }, [])

/** Opens the target. */
export function policy(): Target {
  return {
    name: 'policy',
    maxBytes: 8 * 1024,
    maxCpuMs: 500,
    seeds: SEEDS,
    words: WORDS,
    run: (input) => {
      const lines = input.toString('utf8').split('\n', MOST_LINES)
      const allowed: Entry[] = []
      const denied: Entry[] = []
      const destinations: Destination[] = []
      const addresses: IpAddress[] = []
      for (const line of lines) {
        const rest = line.slice(1)
        if (line.startsWith('?')) {
          const read = parseAuthority(rest)
          if (read.ok) destinations.push(read.value)
        } else if (line.startsWith('=')) {
          const read = parseAddress(rest)
          if (read.ok) addresses.push(read.value)
        } else if (line.startsWith('!')) denied.push(...checkEntry(rest))
        else allowed.push(...checkEntry(line))
      }
      for (const destination of destinations) checkDecision(allowed, denied, destination, addresses)
    },
  }
}

function checkEntry(text: string): Entry[] {
  const [inFile, inToken] = (['file', 'token'] as const).map((from) => parseEntry(text, { from }))
  hold(inFile !== undefined && inToken !== undefined, 'both were read')
  for (const read of [inFile, inToken]) {
    if (read.ok) {
      const again = parseEntry(read.value.text, { from: 'token' })
      same(again, read, 'the canonical text of an entry means something else')
    } else {
      hold(read.fault.message.length < 4096, 'a fault is told at length', () => read.fault.message.length)
      const { hint } = read.fault
      if (hint !== undefined && hint !== '') {
        const right = parseEntry(hint, { from: 'token' })
        hold(right.ok, 'what is said to be right is refused', () => [text, read])
      }
    }
  }
  if (inToken.ok) same(inFile, inToken, 'an entry of a token means something else in a file')
  return inFile.ok ? [inFile.value] : []
}

function checkDecision(
  allowed: readonly Entry[],
  denied: readonly Entry[],
  destination: Destination,
  addresses: readonly IpAddress[],
): void {
  const texts = (entries: readonly Entry[]) => entries.map(({ text }) => text)
  const compiled = compilePolicy(
    { kind: 'static', allowedHosts: texts(allowed), deniedHosts: texts(denied) },
    { from: 'file' },
  )
  hold(compiled.ok && rules.ok, 'entries that can be read make no policy', () => compiled)
  const layers: Layers = { version: 'v', layers: [{ name: 'claim', policy: compiled.value, mode: 'enforce' }] }
  const network = rules.value

  const named = decideName(layers, destination, network)
  const decided = decideAddresses(layers, destination, addresses, network)
  same(explain(layers, destination, undefined, network).decision, named, 'explain says something else of a name')
  const explained = explain(layers, destination, addresses, network)
  same(explained.decision, { ...decided, permit: undefined }, 'explain says something else of addresses')
  hold(named.effective === 'allow' || decided.effective === 'deny', 'what is refused by name is let out by address')
  // Without addresses a tunnel's name was resolved elsewhere; a decision without any is a refusal.
  if (addresses.length > 0)
    hold(
      (stillAllowed(layers, destination, addresses, network) === undefined) === (decided.effective === 'allow'),
      'an open tunnel is judged differently',
    )
  hold(
    decided.effective === 'deny' || explained.layers.every(({ verdict }) => verdict.allows),
    'a layer refuses what is let out',
  )

  // The same question, asked of every entry one by one.
  const flat = (entries: readonly Entry[]) =>
    entries.flatMap((entry) => (entry.kind === 'preset' ? entry.entries : [entry]))
  const isListed = flat(allowed).some((entry) => covers(entry, destination, entry.ports))
  if (named.effective === 'allow') hold(isListed, 'something is let out that no entry allows', () => texts(allowed))
  const isDenied = flat(denied).some((entry) => covers(entry, destination, entry.hasPorts ? entry.ports : undefined))
  if (isDenied) hold(named.effective === 'deny', 'a denied entry does not deny', () => [texts(denied), destination])
  if (isListed && denied.length === 0 && destination.kind === 'name')
    hold(named.effective === 'allow', 'what an entry allows is refused', () => [texts(allowed), destination, named])
}

function covers(entry: HostEntry, destination: Destination, ports: HostEntry['ports'] | undefined): boolean {
  if (ports !== undefined && !ports.some(({ low, high }) => low <= destination.port && destination.port <= high))
    return false
  if (destination.kind === 'name')
    return entry.kind === 'exact'
      ? entry.host === destination.host
      : entry.kind === 'wildcard' && destination.host.endsWith(`.${entry.below}`)
  const { address } = destination
  const mapped = address.text.startsWith('::ffff:') ? parseAddress(address.text.slice(7)) : undefined
  const all = mapped?.ok === true ? [address, mapped.value] : [address]
  if (entry.kind === 'address') return all.some(({ text }) => text === entry.address.text)
  return entry.kind === 'range' && all.some((one) => contains(entry.range, one))
}
