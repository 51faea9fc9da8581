/** The three messages of a SOCKS5 client. */
import { parseAuthority } from '../../../policies/index.ts'
import {
  parseGreeting,
  parseSocksRequest,
  parseUserPassword,
  type SocksMessage,
} from '../../../proxy/dialects/socks5.ts'
import { readSocksPassword } from '../../../proxy/tokens/credentials.ts'
import { pieces } from '../random.ts'
import { hold, same, type Target } from '../target.ts'

const GREETING = Buffer.from([5, 2, 0, 2])
const PASSWORD = Buffer.concat([Buffer.from([1, 1]), Buffer.from('u'), Buffer.from([5]), Buffer.from('a.b.c')])
const NAME = Buffer.concat([Buffer.from([5, 1, 0, 3, 11]), Buffer.from('api.example'), Buffer.from([1, 187])])
const IPV4 = Buffer.from([5, 1, 0, 1, 203, 0, 113, 7, 0, 80])
const IPV6 = Buffer.from([5, 1, 0, 4, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 1, 187])
const LONGEST = 2 + 255

/** Opens the target. */
export function socks5(): Target {
  return {
    name: 'socks5',
    maxBytes: 1024,
    maxCpuMs: 150,
    seeds: [
      GREETING,
      PASSWORD,
      NAME,
      IPV4,
      IPV6,
      Buffer.concat([GREETING, PASSWORD, NAME, Buffer.from('early')]),
      Buffer.concat([Buffer.from([5, 1, 0]), IPV4]),
    ],
    words: [
      '\x05\x01\x00\x03',
      '\x05\x01\x00\x01',
      '\x05\x01\x00\x04',
      '\x01\x00',
      '\x05\x01\x02',
      '\x05\x02\x00',
      '\0',
      '\xff',
    ],
    run: (input) => {
      for (const bound of [false, true]) {
        const greeting = check(input, (bytes) => parseGreeting(bytes, bound))
        if (greeting.state === 'done') converse(input.subarray(greeting.length), greeting.method === 0)
      }
      converse(input, false)
      converse(input, true)
    },
  }
}

/** What follows the greeting, as a session reads it. */
function converse(input: Buffer, isIn: boolean): void {
  let rest = input
  if (!isIn) {
    const password = check(input, parseUserPassword)
    if (password.state !== 'done') return
    hold(password.user.length <= 255 && password.password.length <= 255, 'a password is longer than it can be')
    const credentials = readSocksPassword(password.user, password.password)
    hold(credentials.kind !== 'none', 'a password is no credentials at all')
    rest = input.subarray(password.length)
  }
  const request = check(rest, parseSocksRequest)
  if (request.state !== 'done') return
  const destination = parseAuthority(request.target)
  if (rest[3] === 3 || !destination.ok) return
  const { value } = destination
  hold(value.kind === 'address', 'an address is read as a name', () => request.target)
  hold(value.port === rest.readUInt16BE(request.length - 2), 'the port is another')
}

/** A message is read the same whole, in pieces, and with something behind it. */
function check<T>(input: Buffer, parse: (bytes: Buffer) => SocksMessage<T>): SocksMessage<T> {
  const whole = parse(input)
  let held = 0
  let inPieces: SocksMessage<T> = parse(input.subarray(0, 0))
  for (const piece of pieces(input)) {
    held += piece.length
    inPieces = parse(input.subarray(0, held))
    if (inPieces.state !== 'more') break
  }
  // Told apart by what came first, a refusal may have another reason.
  hold(inPieces.state === whole.state, 'a message in pieces is read as another than the whole', () => [whole, inPieces])
  if (whole.state === 'done') {
    same(inPieces, whole, 'a message in pieces says something else than the whole')
    same(parse(input.subarray(0, whole.length)), whole, 'what follows a message changes it')
  }
  if (whole.state === 'more') hold(input.length < 2 * LONGEST, 'more than the longest message is waited for')
  return whole
}
