/** Relays one tunnel to an origin that echoes, in a process of its own; prints what became of it. For flags of Node that change what a relay can use. */
import crypto from 'node:crypto'
import net from 'node:net'
import { systemClock } from '../../../proxy/clock.ts'
import { openWire } from '../../../proxy/egress/dial.ts'
import { listenTcp } from '../../../proxy/relay/listen.ts'
import { hasHandles } from '../../../proxy/relay/node-handles.ts'
import { relay } from '../../../proxy/relay/relay.ts'
import { Side } from '../../../proxy/relay/side.ts'
import { address } from '../egress/permits.ts'
import { connectPlain, readBytes, startOrigin } from './harness.ts'

const origin = await startOrigin((socket) => socket.pipe(socket))
const ended = Promise.withResolvers<string>()
const listener = await listenTcp({
  host: '127.0.0.1',
  port: 0,
  onSide: (client) => {
    openWire(address('127.0.0.1'), origin.port, (outcome) => {
      if (typeof outcome === 'string') throw new Error(outcome)
      const onClose = ({ closeReason }: { readonly closeReason: string }): void => ended.resolve(closeReason)
      relay(client, new Side(outcome.connection), { clock: systemClock, onClose })
    })
  },
})
const client: net.Socket = connectPlain({ port: listener.port, host: '127.0.0.1' })
const sent = crypto.randomBytes(5 * 1024 * 1024)
const echo = readBytes(client)
client.end(sent)
const isWhole = (await echo).equals(sent)
client.destroy()
console.log(JSON.stringify({ hasHandles, isWhole, closeReason: await ended.promise }))
await listener.close()
await origin.close()
