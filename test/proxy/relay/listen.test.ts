/** Where clients come in: shared ports, TLS with renewed certificates and client certificates, unix sockets. */
import { execFile } from 'node:child_process'
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import tls from 'node:tls'
import { afterEach, describe, expect, test } from 'vitest'
import type { SallyportError } from '../../../policies/error.ts'
import { type Listener, listenTcp, type ListenTcpOptions, listenUnix } from '../../../proxy/relay/listen.ts'
import type { Side } from '../../../proxy/relay/side.ts'
import type { ClientInfo } from '../../../proxy/request.ts'
import { type Authority, createAuthority, type Pem } from '../../origins/certificates.ts'
import { closing, connectPlain, connectTls } from './harness.ts'

const closers: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

interface Accepted {
  readonly side: Side
  readonly client: ClientInfo
}

/** Collects what comes in, and greets it. */
function greeter(): {
  onSide: (side: Side, client: ClientInfo) => void
  accepted: Accepted[]
  next: () => Promise<Accepted>
} {
  const accepted: Accepted[] = []
  const waiting: ((one: Accepted) => void)[] = []
  return {
    accepted,
    next: () => new Promise((resolve) => waiting.push(resolve)),
    onSide: (side, client) => {
      closers.push(() => side.destroy())
      side.write(Buffer.from('hello\n'))
      accepted.push({ side, client })
      waiting.shift()?.({ side, client })
    },
  }
}

async function listen(options: Partial<ListenTcpOptions> & Pick<ListenTcpOptions, 'onSide'>): Promise<Listener> {
  const listener = await listenTcp({ host: '127.0.0.1', port: 0, ...options })
  closers.push(() => listener.close())
  return listener
}

async function fault(promise: Promise<unknown>): Promise<{ code: string; message: string }> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason as SallyportError,
  )
  return { code: error?.code ?? 'none', message: error?.message ?? '' }
}

describe('a TCP port', () => {
  test('several listeners share it, and all are served', async () => {
    const { onSide, accepted } = greeter()
    const listener = await listen({ onSide, listeners: 4 })
    const clients = Array.from({ length: 40 }, () => connectPlain({ port: listener.port, host: '127.0.0.1' }))
    closers.push(() => clients.forEach((client) => client.destroy()))
    await Promise.all(clients.map((client) => once(client, 'data')))
    expect(accepted).toHaveLength(40)
    expect(new Set(accepted.map(({ client }) => client.address))).toEqual(new Set(['127.0.0.1']))
    expect(new Set(accepted.map(({ client }) => client.port))).toEqual(
      new Set(clients.map((client) => client.localPort)),
    )
  })

  test('an IPv4 client of an IPv6 listener has its IPv4 address', async (context) => {
    const { onSide, next } = greeter()
    const listener = await listenTcp({ host: '::', port: 0, onSide }).catch(() => undefined)
    if (listener === undefined) return context.skip('this machine has no IPv6')
    closers.push(() => listener.close())
    const four = next()
    closers.push(() => void client.destroy())
    const client = connectPlain({ port: listener.port, host: '127.0.0.1' })
    expect((await four).client.address).toBe('127.0.0.1')
    const six = next()
    const other = connectPlain({ port: listener.port, host: '::1' })
    closers.push(() => void other.destroy())
    expect((await six).client.address).toBe('::1')
  })

  test('carries the identity that it is bound to', async () => {
    const { onSide, next } = greeter()
    const bound = { tokenId: 'b' } as NonNullable<ClientInfo['bound']>
    const listener = await listen({ onSide, bound })
    const one = next()
    const client = connectPlain({ port: listener.port, host: '127.0.0.1' })
    closers.push(() => void client.destroy())
    expect((await one).client.bound).toBe(bound)
  })

  test('in use, also by a sharing listener of the same user: one clear line', async () => {
    const { onSide } = greeter()
    const first = await listen({ onSide })
    const { code, message } = await fault(listenTcp({ host: '127.0.0.1', port: first.port, onSide }))
    expect({ code, message }).toEqual({
      code: 'SALLYPORT_LISTEN_FAILED',
      message: `can't listen on \`127.0.0.1:${first.port}\`: it is in use`,
    })
    expect(await fault(listenTcp({ host: '127.0.0.1', port: first.port, listeners: 1, onSide }))).toMatchObject({
      code: 'SALLYPORT_LISTEN_FAILED',
    })
  })

  test("of an address that is not this machine's: one clear line", async () => {
    const { code, message } = await fault(listenTcp({ host: '192.0.2.1', port: 0, onSide: () => undefined }))
    expect(code).toBe('SALLYPORT_LISTEN_FAILED')
    expect(message).toMatch(/^can't listen on `192\.0\.2\.1:0`: this machine has no such address$/)
  })

  test('closed, it is free at once, while its open connections go on', async () => {
    const { onSide, next } = greeter()
    const listener = await listenTcp({ host: '127.0.0.1', port: 0, onSide })
    const one = next()
    const client = connectPlain({ port: listener.port, host: '127.0.0.1' })
    closers.push(() => void client.destroy())
    const { side } = await one
    await listener.close()
    await listener.close()
    const again = await listenTcp({ host: '127.0.0.1', port: listener.port, onSide })
    await again.close()
    const refused = connectPlain({ port: listener.port, host: '127.0.0.1' })
    expect(await new Promise((resolve) => refused.once('error', resolve))).toMatchObject({ code: 'ECONNREFUSED' })
    client.write('still here')
    expect((await side.read())?.toString()).toBe('still here')
  })
})

describe('TLS', () => {
  const thumbprint = (pem: Pem): string =>
    crypto.createHash('sha256').update(new crypto.X509Certificate(pem.cert).raw).digest('base64url')
  let authority: Authority | undefined
  const ca = (): Authority => (authority ??= createAuthority())

  async function handshake(listener: Listener, options: tls.ConnectionOptions = {}): Promise<tls.TLSSocket> {
    const client = connectTls(listener.port, ca().cert, options)
    closers.push(() => void client.destroy())
    await once(client, 'data')
    return client
  }

  test('a renewed certificate is used from the next connection on, and a bad one keeps the old', async () => {
    const { onSide } = greeter()
    const [before, after] = [
      ca().issue('localhost', { addresses: ['127.0.0.1'] }),
      ca().issue('localhost', { addresses: ['127.0.0.1'] }),
    ]
    const listener = await listen({ onSide, tls: before })
    const first = await handshake(listener)
    expect(first.getPeerX509Certificate()?.raw).toEqual(new crypto.X509Certificate(before.cert).raw)
    listener.reload(after)
    for (let index = 0; index < 12; index++) {
      expect((await handshake(listener)).getPeerX509Certificate()?.raw).toEqual(
        new crypto.X509Certificate(after.cert).raw,
      )
    }
    for (const bad of [
      { cert: 'x', key: 'y' },
      { cert: before.cert, key: after.key },
      { ...before, clientCa: ca().cert },
    ]) {
      expect(() => listener.reload(bad)).toThrow(expect.objectContaining({ code: 'SALLYPORT_KEY_UNREADABLE' }) as Error)
    }
    expect((await handshake(listener)).getPeerX509Certificate()?.raw).toEqual(
      new crypto.X509Certificate(after.cert).raw,
    )
    expect(first.destroyed).toBe(false)
  })

  test("files that can't be used at the start", async () => {
    const pem = ca().issue('localhost')
    const { code, message } = await fault(
      listenTcp({ host: '127.0.0.1', port: 0, onSide: () => undefined, tls: { cert: pem.cert, key: 'no key' } }),
    )
    expect(code).toBe('SALLYPORT_KEY_UNREADABLE')
    expect(message).not.toContain('no key')
  })

  test('a client certificate is required, verified, and known by its thumbprint', async () => {
    const { onSide, next, accepted } = greeter()
    const faults: string[] = []
    const pem = ca().issue('localhost', { addresses: ['127.0.0.1'] })
    const client = ca().issue('sandbox-1', { client: true })
    const stranger = createAuthority('another CA').issue('sandbox-1', { client: true })
    const listener = await listen({
      onSide,
      tls: { ...pem, clientCa: ca().cert },
      onFault: ({ kind, code }) => faults.push(`${kind} ${code}`),
    })
    const one = next()
    await handshake(listener, client)
    expect((await one).client.certificateThumbprint).toBe(thumbprint(client))
    for (const options of [{}, stranger]) {
      const refused = connectTls(listener.port, ca().cert, options)
      await closing(refused)
    }
    expect(accepted).toHaveLength(1)
  })

  test("where it is only asked for, a client without one, or with a stranger's, has no thumbprint", async () => {
    const { onSide, accepted } = greeter()
    const pem = ca().issue('localhost', { addresses: ['127.0.0.1'] })
    const client = ca().issue('sandbox-1', { client: true })
    const stranger = createAuthority('another CA').issue('sandbox-1', { client: true })
    const listener = await listen({ onSide, tls: { ...pem, clientCa: ca().cert, clientCertificate: 'request' } })
    for (const options of [{}, stranger, client]) await handshake(listener, options)
    expect(accepted.map(({ client: info }) => info.certificateThumbprint)).toEqual([
      undefined,
      undefined,
      thumbprint(client),
    ])
  })

  test.each(['TLSv1.2', 'TLSv1.3'] as const)(
    'with client certificates no session is resumed (%s): a CA that is gone is gone',
    async (version) => {
      const { onSide } = greeter()
      const pem = ca().issue('localhost', { addresses: ['127.0.0.1'] })
      const client = ca().issue('sandbox-1', { client: true })
      const listener = await listen({ onSide, listeners: 1, tls: { ...pem, clientCa: ca().cert } })
      const sessions: Buffer[] = []
      const options = { ...client, minVersion: version, maxVersion: version }
      const first = connectTls(listener.port, ca().cert, options)
      closers.push(() => void first.destroy())
      first.on('session', (session) => sessions.push(session))
      await once(first, 'data')
      const session = sessions.at(-1) ?? first.getSession()
      const second = await handshake(listener, { ...options, ...(session && { session }) })
      expect(second.isSessionReused()).toBe(false)
      listener.reload({ ...pem, clientCa: createAuthority('the next CA').cert })
      const third = connectTls(listener.port, ca().cert, { ...options, ...(session && { session }) })
      await closing(third)
    },
  )

  test('what is not TLS is a fault of that connection alone', async () => {
    const { onSide, accepted } = greeter()
    const faults: string[] = []
    const pem = ca().issue('localhost', { addresses: ['127.0.0.1'] })
    const listener = await listen({ onSide, tls: pem, onFault: ({ kind, code }) => faults.push(`${kind} ${code}`) })
    const plain = connectPlain({ port: listener.port, host: '127.0.0.1' })
    plain.write('CONNECT x:443 HTTP/1.1\r\n\r\n')
    await closing(plain)
    await handshake(listener)
    expect(accepted).toHaveLength(1)
    expect(faults).toEqual([expect.stringMatching(/^tls_handshake ERR_SSL_/)])
  })

  test('a handshake has its time', async () => {
    const { onSide, accepted } = greeter()
    const faults: string[] = []
    const pem = ca().issue('localhost', { addresses: ['127.0.0.1'] })
    const onFault: ListenTcpOptions['onFault'] = ({ kind, code }) => faults.push(`${kind} ${code}`)
    const listener = await listen({ onSide, tls: pem, handshakeTimeoutMs: 30, onFault })
    await closing(connectPlain({ port: listener.port, host: '127.0.0.1' }))
    expect(accepted).toHaveLength(0)
    expect(faults).toEqual(['tls_handshake ERR_TLS_HANDSHAKE_TIMEOUT'])
  })
})

describe('a unix socket', () => {
  function folder(): string {
    const made = fs.mkdtempSync(path.join(os.tmpdir(), 'listen-'))
    closers.push(() => fs.rmSync(made, { recursive: true, force: true }))
    return made
  }

  test('its clients are `unix`, its mode is what was asked, and its file goes with it', async () => {
    const { onSide, next } = greeter()
    const file = path.join(folder(), 'gw')
    const listener = await listenUnix({ path: file, onSide })
    expect(fs.statSync(file).mode & 0o777).toBe(0o600)
    const one = next()
    const client = connectPlain({ path: file })
    closers.push(() => void client.destroy())
    expect((await one).client).toEqual({ address: 'unix', port: 0 })
    await listener.close()
    expect(fs.existsSync(file)).toBe(false)
    const other = await listenUnix({ path: file, mode: 0o666, onSide })
    closers.push(() => other.close())
    expect(fs.statSync(file).mode & 0o777).toBe(0o666)
  })

  test('a stale one is removed, one that is answered on is not, nor is anything else', async () => {
    const here = folder()
    const stale = path.join(here, 'stale')
    // Dies without closing: the file stays.
    await promisify(execFile)(process.execPath, [
      '-e',
      `require('net').createServer().listen(${JSON.stringify(stale)}, () => process.kill(process.pid, 'SIGKILL'))`,
    ]).catch(() => undefined)
    expect(fs.lstatSync(stale).isSocket()).toBe(true)
    const listener = await listenUnix({ path: stale, onSide: () => undefined })
    closers.push(() => listener.close())
    expect(await fault(listenUnix({ path: stale, onSide: () => undefined }))).toEqual({
      code: 'SALLYPORT_LISTEN_FAILED',
      message: `can't listen on \`unix:${stale}\`: it is in use`,
    })
    const file = path.join(here, 'notes.txt')
    fs.writeFileSync(file, 'mine')
    const link = path.join(here, 'link')
    fs.symlinkSync(stale, link)
    for (const other of [file, link, here]) {
      expect(await fault(listenUnix({ path: other, onSide: () => undefined }))).toMatchObject({
        code: 'SALLYPORT_LISTEN_FAILED',
      })
    }
    expect(fs.readFileSync(file, 'utf8')).toBe('mine')
    expect(fs.lstatSync(link).isSymbolicLink()).toBe(true)
  })

  test('a path that does not fit, or has no folder: one clear line', async () => {
    const here = folder()
    expect(
      (await fault(listenUnix({ path: path.join(here, 'x'.repeat(120)), onSide: () => undefined }))).message,
    ).toContain('at most 103 bytes')
    expect(
      (await fault(listenUnix({ path: path.join(here, 'no', 'such'), onSide: () => undefined }))).message,
    ).toContain('its folder does not exist')
  })
})

test('with no descriptors left it goes on, and accepts again when there are some', async (context) => {
  if (process.platform === 'win32') return context.skip('no limit on descriptors to set')
  const script = path.join(import.meta.dirname, 'few-descriptors.ts')
  const { stdout } = await promisify(execFile)('sh', ['-c', `ulimit -n 80; exec "${process.execPath}" "${script}"`])
  expect(JSON.parse(stdout)).toEqual({ exhausted: true, served: true, spun: false })
})
