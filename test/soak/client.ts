/** Clients of a soak: open tunnels, send something through, end them, and remember what they were told. */
import net from 'node:net'

/** What became of one connection, as its client saw it. */
export interface Seen {
  readonly target: string
  readonly gateway: string
  readonly startedMs: number
  /** Status and reason; `gone` without an answer. */
  readonly answer: string
  readonly answeredMs: number
  endedMs: number
}

const PATIENCE_MS = 30_000

/** Opens one connection and, where it is let out, uses it for `lifeMs`. Resolves when it is over. */
export function connectOnce(
  proxy: string,
  gateway: string,
  target: string,
  token: string,
  lifeMs: number,
): Promise<Seen> {
  return new Promise((resolve) => {
    const startedMs = Date.now()
    const socket = net.connect(proxy)
    let head = ''
    let answer = 'gone'
    let answeredMs = 0
    socket.setTimeout(PATIENCE_MS, () => socket.destroy())
    socket.on('error', () => socket.destroy())
    socket.on('data', (chunk) => {
      if (answeredMs !== 0) return
      head += chunk.toString('latin1')
      if (!head.includes('\r\n\r\n')) return
      answeredMs = Date.now()
      answer = `${head.slice(9, 12)} ${/x-deny-reason: (\S+)/i.exec(head)?.[1] ?? ''}`.trim()
      if (answer !== '200') socket.end()
      else {
        socket.write(Buffer.alloc(2000, 7))
        setTimeout(() => socket.end(), lifeMs)
      }
    })
    socket.on('close', () => resolve({ target, gateway, startedMs, answer, answeredMs, endedMs: Date.now() }))
    socket.write(`CONNECT ${target} HTTP/1.1\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  })
}
