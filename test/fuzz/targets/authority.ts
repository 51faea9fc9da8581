/** `host:port`, as every dialect hands it on. */
import { authorityText, destinationOf, hostText, parseAuthority } from '../../../policies/index.ts'
import { parseConnectHead } from '../../../proxy/dialects/connect-head.ts'
import { parseAbsoluteTarget } from '../../../proxy/dialects/http-target.ts'
import { KnownDestinations } from '../../../proxy/known-destinations.ts'
import { hold, same, type Target } from '../target.ts'

const SEEDS = [
  'api.example.com:443',
  'API.Example.Com.:8443',
  'xn--bcher-kva.example:80',
  '203.0.113.7:22',
  '[2001:db8::7]:443',
  '[::ffff:203.0.113.7]:80',
  '[fe80::1%25eth0]:80',
  'user:password@host.example:443',
  '0x7f.1:80',
  '2130706433:80',
  'host_name.example:65535',
]
const WORDS = [
  '.',
  ':',
  '[',
  ']',
  '::',
  '%25',
  '@',
  '/',
  'xn--',
  '0x',
  '0177',
  '127.0.0.1',
  '.example',
  ':443',
  '\0',
  '\u00ad',
  '１',
]

/** Opens the target. */
export function authority(): Target {
  const known = new KnownDestinations()
  return {
    name: 'authority',
    maxBytes: 4096,
    maxCpuMs: 150,
    seeds: SEEDS.map((text) => Buffer.from(text)),
    words: WORDS,
    run: (input) => {
      const text = input.toString('latin1')
      const read = parseAuthority(text)
      same(known.read(text), read, 'a remembered target reads as another')
      same(known.read(text), read, 'a remembered target reads as another')
      parseAbsoluteTarget('GET', `http://${text}/`)
      const head = parseConnectHead(Buffer.from(`CONNECT ${text} HTTP/1.1\r\n\r\n`, 'latin1'))
      if (!read.ok) {
        hold(read.fault.code === 'target_malformed', 'a target has another fault than `target_malformed`', () => read)
        hold(text.length < 12 || !read.fault.message.includes(text), 'the fault repeats the target', () => read)
        return
      }
      const canonical = authorityText(read.value)
      same(parseAuthority(canonical), read, 'the canonical form means something else')
      hold(/^[a-z0-9._\-:[\]]{3,262}$/.test(canonical), 'the canonical form is not canonical', () => canonical)
      const host = hostText(read.value)
      same(
        destinationOf(host.includes(':') ? `[${host}]` : host, read.value.port),
        read,
        'host and port apart mean something else',
      )
      hold(
        head.state === 'done' && head.target === text,
        'CONNECT refuses or changes a target that can be read',
        () => head,
      )
      // What others make of a host must not be another one: a name that a browser reads as an address is none.
      const others = URL.canParse(`http://${text}/`) ? new URL(`http://${text}/`).hostname : undefined
      const own = host.includes(':') ? `[${host}]` : host
      hold(
        others === undefined || others.replace(/\.$/, '') === own || own.startsWith('[::ffff:'),
        'the WHATWG parser reads another host',
        () => [own, others],
      )
    },
  }
}
