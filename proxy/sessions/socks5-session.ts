/** The SOCKS5 conversation: greeting, user and password, one CONNECT. @see RFC 1928, RFC 1929 */
import { openConnection, recordRefusal } from '../connection.ts'
import {
  parseGreeting,
  parseSocksRequest,
  parseUserPassword,
  SOCKS_AUTH_FAILED,
  SOCKS_AUTH_OK,
  SOCKS_OK,
  type SocksMessage,
  socksMethodReply,
  socksRefusal,
} from '../dialects/socks5.ts'
import type { Side } from '../relay/side.ts'
import type { ClientInfo, Credentials, Refusal } from '../request.ts'
import { readSocksPassword } from '../tokens/credentials.ts'
import { closeAfter, readMessage } from './reading.ts'
import { endEarly, mayGoOn, requestOf, type SessionContext } from './session.ts'

/** Serves a connection whose first byte is that of SOCKS5; resolves when it is a tunnel or ended. */
export async function serveSocks5(
  context: SessionContext,
  side: Side,
  client: ClientInfo,
  first: Buffer,
): Promise<void> {
  const isBound = client.bound !== undefined

  const greeting = await next(first, (bytes) => parseGreeting(bytes, isBound))
  if (!greeting) return
  side.write(socksMethodReply(greeting.method))
  if (greeting.method === 0xff) return refuse({ ok: false, reason: 'token_missing' }, Buffer.alloc(0))
  let rest = greeting.rest

  let credentials: Credentials = { kind: 'none' }
  if (greeting.method === 0x02) {
    const login = await next(rest, parseUserPassword)
    if (!login) return
    rest = login.rest
    credentials = readSocksPassword(login.user, login.password)
    const who = isBound ? undefined : await context.gate.identify(credentials, client)
    if (who?.ok === false) return refuse(who, SOCKS_AUTH_FAILED)
    side.write(SOCKS_AUTH_OK)
  }

  const wanted = await next(rest, parseSocksRequest)
  if (!wanted) return
  context.heads.stop(side)
  const request = requestOf(context, client, 'socks5', wanted.target, credentials)
  const outcome = await openConnection(context.gate, request, context.dialTunnel)
  if (!outcome.ok) return closeAfter(side, socksRefusal(outcome.reason), context.lingers)
  side.write(SOCKS_OK)
  context.startTunnel({ request, opened: outcome, client: side, early: wanted.rest })

  /** The next message and the bytes behind it; `undefined` when the connection is over. */
  async function next<T extends object>(have: Buffer, parse: (bytes: Buffer) => SocksMessage<T>) {
    const { message, bytes } = await readMessage(side, have, parse, mayGoOn(context, client))
    if (message.state === 'done') return { ...message, rest: bytes.subarray(message.length) }
    if (message.state === 'refused') {
      await refuse({ ok: false, reason: message.reason, detail: message.detail }, message.reply, message.target)
    } else {
      await endEarly(context, side, client, first, 'socks5')
    }
    return undefined
  }

  async function refuse(refusal: Refusal, reply: Buffer, target = ''): Promise<void> {
    context.heads.stop(side)
    await recordRefusal(context.gate, requestOf(context, client, 'socks5', target), refusal)
    return closeAfter(side, reply, context.lingers)
  }
}
