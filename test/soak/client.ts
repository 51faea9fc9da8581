/** Clients of a soak: open tunnels, send something through, end them, and remember what they were told. */
import net from 'node:net'
import type { SoakToken } from './tokens.ts'

/** What became of one connection, as its client saw it. */
export interface Seen {
  readonly target: string
  readonly gateway: string
  readonly token: SoakToken
  readonly startedMs: number
  /** Status and reason; `gone` without an answer. */
  readonly answer: string
  readonly answeredMs: number
  /** Whether the bytes that came back were those that were sent, as far as they came. */
  readonly isIntact: boolean
  endedMs: number
  /** How the client saw it end: the code of a fault, `patience` when nothing came for so long, else `end`. */
  readonly ending: string
}

const PATIENCE_MS = 30_000
const SENT = Buffer.from(Array.from({ length: 2000 }, (_none, index) => (index * 7) % 251))

/** Opens one connection and, where it is let out, uses it for `lifeMs`. Resolves when it is over. */
export function connectOnce(
  proxy: net.NetConnectOpts,
  connection: Pick<Seen, 'gateway' | 'target' | 'token'>,
  lifeMs: number,
): Promise<Seen> {
  return new Promise((resolve) => {
    const startedMs = Date.now()
    const socket = net.connect(proxy)
    let head = ''
    let answer = 'gone'
    let answeredMs = 0
    let echoed = 0
    let isIntact = true
    let ending = 'end'
    socket.setTimeout(PATIENCE_MS, () => {
      ending = 'patience'
      socket.destroy()
    })
    socket.on('error', ({ code }: NodeJS.ErrnoException) => {
      ending = code ?? 'UNKNOWN'
      socket.destroy()
    })
    socket.on('data', (chunk: Buffer) => {
      if (answeredMs !== 0) {
        isIntact &&= chunk.equals(SENT.subarray(echoed, echoed + chunk.length))
        echoed += chunk.length
        return
      }
      head += chunk.toString('latin1')
      if (!head.includes('\r\n\r\n')) return
      answeredMs = Date.now()
      answer = `${head.slice(9, 12)} ${/x-deny-reason: (\S+)/i.exec(head)?.[1] ?? ''}`.trim()
      if (answer !== '200') socket.end()
      else {
        socket.write(SENT)
        setTimeout(() => socket.end(), lifeMs)
      }
    })
    socket.on('close', () =>
      resolve({ ...connection, startedMs, answer, answeredMs, isIntact, endedMs: Date.now(), ending }),
    )
    const { target, token } = connection
    socket.write(`CONNECT ${target} HTTP/1.1\r\nProxy-Authorization: Bearer ${token.text}\r\n\r\n`)
  })
}
