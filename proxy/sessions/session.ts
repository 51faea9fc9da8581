/** What the sessions of a gateway share, and how one ends before it became a request. */
import type net from 'node:net'
import { type Gate, type openConnection, recordRefusal } from '../connection.ts'
import type { Deadlines } from '../deadlines.ts'
import { type Door, WEIGHT } from '../door.ts'
import type { Side } from '../relay/side.ts'
import type { ClientInfo, ConnectionRequest, Credentials, Dialect } from '../request.ts'
import type { NewTunnel } from '../tunnels/start-tunnel.ts'

/** What the sessions of a gateway share. */
export interface SessionContext {
  readonly gate: Gate
  readonly newRequestId: () => string
  /** For a whole head to arrive, from the accept or from the answer that kept the connection open. */
  readonly heads: Deadlines
  /** For a refused client to take its answer. */
  readonly lingers: Deadlines
  readonly dialTunnel: Parameters<typeof openConnection<Side>>[2]
  /** Takes both sides over. */
  readonly startTunnel: (tunnel: NewTunnel) => void
  /** Takes a connection over whose next bytes are an HTTP request other than CONNECT. */
  readonly forward: (socket: net.Socket, client: ClientInfo) => void
  /** A client came and left without a byte. */
  readonly onEmpty: () => void
  /** Told of what comes to nothing without a line. */
  readonly door: Pick<Door, 'cameToNothing' | 'isClosedTo'>
}

/** What a request looks like before anything is known of it. */
export function requestOf(
  context: SessionContext,
  client: ClientInfo,
  dialect: Dialect,
  target: string,
  credentials: Credentials = { kind: 'none' },
  traceparent?: string,
): ConnectionRequest {
  return { requestId: context.newRequestId(), dialect, target, credentials, client, traceparent }
}

/** Whether a client may send its head in yet another piece; each is booked. */
export function mayGoOn({ door }: SessionContext, client: ClientInfo): () => boolean {
  return () => {
    door.cameToNothing(client, WEIGHT.piece)
    return !door.isClosedTo(client)
  }
}

/** A client that left, or was too slow, before its request was whole. Nothing can be answered; one that sent something is written down. */
export async function endEarly(
  context: SessionContext,
  side: Side,
  client: ClientInfo,
  bytes: Buffer,
  dialect: Dialect,
): Promise<void> {
  context.heads.stop(side)
  side.destroy()
  if (bytes.length > 0) {
    await recordRefusal(context.gate, requestOf(context, client, dialect, ''), {
      ok: false,
      reason: 'request_malformed',
    })
  } else {
    context.onEmpty()
    context.door.cameToNothing(client)
  }
}
