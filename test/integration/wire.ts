/** A raw client: sends bytes, and waits for bytes, answers and endings. Every wait is bounded. */
import net from 'node:net'

export interface Answer {
  readonly status: number
  readonly phrase: string
  /** Lower-case names; a name that came twice holds both values. */
  readonly headers: Readonly<Record<string, readonly string[]>>
  readonly body: string
  /** Head and body as they came, latin1. */
  readonly raw: string
}

const WAIT_MS = 8000

export class WireClient {
  readonly socket: net.Socket
  #received = Buffer.alloc(0)
  #ended = false
  #closed = false
  #wake: (() => void)[] = []

  static async connect(target: net.NetConnectOpts): Promise<WireClient> {
    const socket = net.connect({ ...target, allowHalfOpen: true } as net.NetConnectOpts)
    const client = new WireClient(socket)
    await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
    return client
  }

  constructor(socket: net.Socket) {
    this.socket = socket
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk])
      this.#notify()
    })
    socket.on('end', () => {
      this.#ended = true
      this.#notify()
    })
    socket.on('close', () => {
      this.#closed = true
      this.#notify()
    })
    socket.on('error', () => {
      this.#closed = true
      this.#notify()
    })
  }

  /** What came and was not taken yet. */
  get pending(): Buffer {
    return this.#received
  }

  get isOver(): boolean {
    return this.#ended || this.#closed
  }

  send(bytes: Buffer | string): void {
    if (!this.socket.destroyed) this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes)
  }

  end(): void {
    this.socket.end()
  }

  /** Exactly `length` bytes; fewer only when the other side ended. */
  async take(length: number): Promise<Buffer> {
    await this.#until(() => this.#received.length >= length || this.isOver)
    const taken = this.#received.subarray(0, length)
    this.#received = this.#received.subarray(taken.length)
    return taken
  }

  /** One HTTP answer with its body by content-length or chunks; `undefined` when the connection ended without one. */
  async answer(options: { readonly hasBody?: boolean } = {}): Promise<Answer | undefined> {
    await this.#until(() => this.#received.includes('\r\n\r\n') || this.isOver)
    const end = this.#received.indexOf('\r\n\r\n')
    if (end < 0) return undefined
    const head = this.#received.subarray(0, end).toString('latin1')
    this.#received = this.#received.subarray(end + 4)
    const [line = '', ...lines] = head.split('\r\n')
    const [, status = '', phrase = ''] = /^HTTP\/1\.[01] (\d{3}) ?(.*)$/.exec(line) ?? []
    const headers: Record<string, string[]> = {}
    for (const one of lines) {
      const colon = one.indexOf(':')
      ;(headers[one.slice(0, colon).toLowerCase()] ??= []).push(one.slice(colon + 1).trim())
    }
    const body = options.hasBody === false ? '' : await this.#body(headers)
    return { status: Number(status), phrase, headers, body, raw: `${head}\r\n\r\n${body}` }
  }

  /** Resolves once the other side ended or reset the connection; returns what came until then. */
  async over(waitMs = WAIT_MS): Promise<Buffer> {
    await this.#until(() => this.isOver, waitMs)
    return this.#received
  }

  /** Whether the connection is still open after `ms`, with nothing received. */
  async staysOpen(ms: number): Promise<boolean> {
    try {
      await this.#until(() => this.isOver || this.#received.length > 0, ms)
      return false
    } catch {
      return true
    }
  }

  destroy(): void {
    this.socket.destroy()
  }

  async #body(headers: Record<string, string[]>): Promise<string> {
    if (headers['transfer-encoding']?.[0] === 'chunked') {
      let body = ''
      for (;;) {
        await this.#until(() => this.#received.includes('\r\n') || this.isOver)
        const end = this.#received.indexOf('\r\n')
        const size = parseInt(this.#received.subarray(0, end).toString('latin1'), 16)
        await this.take(end + 2)
        body += (await this.take(size)).toString('latin1')
        await this.take(2)
        if (!(size > 0)) return body
      }
    }
    return (await this.take(Number(headers['content-length']?.[0] ?? 0))).toString('latin1')
  }

  #until(condition: () => boolean, waitMs = WAIT_MS): Promise<void> {
    if (condition()) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#wake = this.#wake.filter((one) => one !== check)
        reject(
          new Error(
            `waited ${waitMs} ms; received so far: ${JSON.stringify(this.#received.toString('latin1').slice(0, 300))}`,
          ),
        )
      }, waitMs)
      const check = () => {
        if (!condition()) return
        clearTimeout(timer)
        this.#wake = this.#wake.filter((one) => one !== check)
        resolve()
      }
      this.#wake.push(check)
    })
  }

  #notify(): void {
    for (const check of [...this.#wake]) check()
  }
}
