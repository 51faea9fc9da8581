/** What happens on one accepted connection until it is a tunnel, is handed to the HTTP forwarder, or is refused. */
import { sniff } from '../dialects/dialect.ts'
import { MAX_CHALLENGES } from '../dialects/reply.ts'
import { endOfTurn } from '../end-of-turn.ts'
import type { Side } from '../relay/side.ts'
import type { ClientInfo } from '../request.ts'
import { refuseHttp, serveConnect } from './connect-session.ts'
import { readMessage } from './reading.ts'
import { endEarly, mayGoOn, requestOf, type SessionContext } from './session.ts'
import { serveSocks5 } from './socks5-session.ts'

const NOTHING = Buffer.alloc(0)

/** Serves one connection by its first byte; resolves when it is a tunnel, somebody else's, or ended. */
export async function serveSide(context: SessionContext, side: Side, client: ClientInfo): Promise<void> {
  const goOn = mayGoOn(context, client)
  for (let challenges = 0; ; challenges++) {
    context.heads.start(side)
    const { message, bytes } = await readMessage(side, NOTHING, readDialect, goOn)
    if (message.state === 'ended') {
      if (challenges === 0 || bytes.length > 0) return endEarly(context, side, client, bytes, 'http')
      context.heads.stop(side)
      side.destroy()
      return
    }
    switch (message.dialect) {
      case 'connect': {
        // Heads that came in together are made out and judged together.
        await endOfTurn()
        const outcome = await serveConnect(context, side, client, bytes, challenges < MAX_CHALLENGES)
        if (outcome === 'over') return
        break
      }
      case 'socks5':
        return serveSocks5(context, side, client, bytes)
      case 'http':
        context.heads.stop(side)
        side.unread(bytes)
        context.forward(side.toStream(), client)
        return
      case 'unknown': {
        const refusal = { ok: false, reason: 'request_malformed', detail: 'neither HTTP nor SOCKS5' } as const
        await refuseHttp(context, side, requestOf(context, client, 'http', ''), refusal)
        return
      }
    }
  }
}

function readDialect(bytes: Buffer) {
  const dialect = sniff(bytes)
  return dialect === 'more' ? ({ state: 'more' } as const) : ({ state: 'done', dialect } as const)
}
