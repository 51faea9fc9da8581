/**
 * Sends the same few messages to a port of loopback again and again, a connection each, as fast as it can up to a rate; for `hostile.ts`:
 * `node bench/flood.ts PORT RATE FILE`. `FILE` holds the messages, in base64, one a line; they are used in turn. With `--drip N`, N connections instead, each of
 * which sends a byte a second and comes again when it was cut. Prints how many were begun, once it is told to stop.
 */
import fs from 'node:fs'
import net from 'node:net'
import { parseArgs } from 'node:util'

const HOST = '127.0.0.1'
const MAX_OPEN = 2_000
const TICK_MS = 5

const { values, positionals } = parseArgs({ options: { drip: { type: 'string' } }, allowPositionals: true })
const [port, rate] = positionals.map(Number) as [number, number]
const messages = fs
  .readFileSync(positionals[2]!, 'latin1')
  .split('\n')
  .map((line) => Buffer.from(line, 'base64'))
let begun = 0
process.once('SIGTERM', () => {
  console.log(JSON.stringify({ begun }))
  process.exit(0)
})
if (values.drip === undefined) flood()
else for (let count = 0; count < Number(values.drip); count++) setTimeout(drip, (count * 1000) / Number(values.drip))

function flood(): void {
  let open = 0
  const startedMs = performance.now()
  setInterval(() => {
    // What could not be sent in time is not made up for.
    const due = Math.min(begun + rate / 10, ((performance.now() - startedMs) / 1000) * rate)
    while (begun < due && open < MAX_OPEN) {
      open++
      const socket = net.connect(port, HOST)
      socket.on('error', () => socket.destroy())
      socket.on('data', () => socket.end())
      socket.on('close', () => open--)
      socket.write(messages[begun++ % messages.length]!)
    }
  }, TICK_MS)
}

function drip(): void {
  const message = messages[begun++ % messages.length]!
  const socket = net.connect(port, HOST)
  let sent = 0
  const timer = setInterval(() => socket.write(message.subarray(sent, ++sent)), 1000)
  socket.on('error', () => socket.destroy())
  socket.on('data', () => socket.end())
  socket.on('close', () => {
    clearInterval(timer)
    setTimeout(drip, 100)
  })
}
