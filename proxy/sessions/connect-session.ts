/** One CONNECT request: read its head, let it out, or say why not. @see RFC 9110 section 9.3.6 */
import { openConnection, recordRefusal } from '../connection.ts'
import { parseConnectHead } from '../dialects/connect-head.ts'
import { CONNECT_OK, httpRefusal } from '../dialects/reply.ts'
import type { Side } from '../relay/side.ts'
import type { ClientInfo, ConnectionRequest, Refusal } from '../request.ts'
import { readProxyAuthorization } from '../tokens/credentials.ts'
import { closeAfter, readMessage } from './reading.ts'
import { endEarly, mayGoOn, requestOf, type SessionContext } from './session.ts'

/**
 * Serves one CONNECT whose first bytes are `first`. `challenged`: the answer was a 407 and the connection stays open for another try, which
 * `mayAskAgain` permits.
 */
export async function serveConnect(
  context: SessionContext,
  side: Side,
  client: ClientInfo,
  first: Buffer,
  mayAskAgain: boolean,
): Promise<'challenged' | 'over'> {
  const reading = readMessage(side, first, parseConnectHead, mayGoOn(context, client))
  const { message: head, bytes } = reading instanceof Promise ? await reading : reading
  if (head.state === 'ended') {
    await endEarly(context, side, client, bytes, 'connect')
    return 'over'
  }
  context.heads.stop(side)
  if (head.state === 'refused') {
    const { reason, detail, target } = head
    return refuseHttp(context, side, requestOf(context, client, 'connect', target ?? ''), { ok: false, reason, detail })
  }

  const credentials = readProxyAuthorization(head.proxyAuthorization)
  const request = requestOf(context, client, 'connect', head.target, credentials, head.traceparent)
  const early = bytes.subarray(head.length)
  const outcome = await openConnection(context.gate, request, context.dialTunnel)
  if (outcome.ok) {
    side.write(CONNECT_OK)
    context.startTunnel({ request, opened: outcome, client: side, early })
    return 'over'
  }
  // Bytes behind a refused CONNECT are no second request: only a bare challenge with nothing behind it keeps the connection.
  const keepOpen = mayAskAgain && outcome.reason === 'token_missing' && early.length === 0 && head.version === '1.1'
  if (!keepOpen) {
    await closeAfter(side, httpRefusal(outcome, request), context.lingers)
    return 'over'
  }
  side.write(httpRefusal(outcome, { requestId: request.requestId, keepOpen }))
  return 'challenged'
}

/** Writes the refusal down, answers it and closes. */
export async function refuseHttp(
  context: SessionContext,
  side: Side,
  request: ConnectionRequest,
  refusal: Refusal,
): Promise<'over'> {
  context.heads.stop(side)
  await recordRefusal(context.gate, request, refusal)
  await closeAfter(side, httpRefusal(refusal, request), context.lingers)
  return 'over'
}
