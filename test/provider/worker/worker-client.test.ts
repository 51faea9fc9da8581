/** What the client makes of replies: nothing a worker sends is believed because it came. */
import { once } from 'node:events'
import net from 'node:net'
import v8 from 'node:v8'
import vm from 'node:vm'
import { describe, expect, it, onTestFinished } from 'vitest'
import { collect } from '../../../provider/worker-client/collect.ts'
import { createWorkerClient, type WorkerClient } from '../../../provider/worker-client.ts'
import type { WireEvent } from '../../../provider/worker/wire.ts'

v8.setFlagsFromString('--expose-gc')
const collectGarbage = vm.runInNewContext('gc') as () => void

/** What is still in use after a collection. */
function usedBytes(): number {
  collectGarbage()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

const TOKEN = 'a marker that no error may hold'
const RESULT = '{"type":"result","exitCode":0,"timedOut":false,"durationMs":1}\n'
const LOST = { code: 'SALLYPORT_SANDBOX_CONNECTION_LOST', outcome: 'unknown' }

/** A client of a worker that answers every request with these bytes, and then ends or stays silent. */
async function clientOf(reply: string | Buffer, { ends = true, silenceMs = 5_000 } = {}): Promise<WorkerClient> {
  const sockets = new Set<net.Socket>()
  const server = net.createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.once('data', () => {
      socket.write(reply)
      if (ends) socket.end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const { port } = server.address() as net.AddressInfo
  const connect = async (): Promise<net.Socket> => {
    const socket = net.connect(port, '127.0.0.1')
    await once(socket, 'connect')
    return socket
  }
  return createWorkerClient({ connect, token: TOKEN, silenceMs })
}

const head = (headers = '', status = '200 OK') => `HTTP/1.1 ${status}\r\n${headers}\r\n`
const chunked = (text: string) =>
  `${head('transfer-encoding: chunked\r\n')}${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n0\r\n\r\n`
const json = (value: unknown, status?: string) => {
  const text = JSON.stringify(value)
  return head(`content-length: ${Buffer.byteLength(text)}\r\n`, status) + text
}

describe('a command', () => {
  it('has a result when a whole one came', async () => {
    const client = await clientOf(chunked(`{"type":"ping"}\n{"type":"stdout_delta","data":"hi"}\n${RESULT}`))
    expect(await client.execute({ command: 'x' })).toEqual({
      exitCode: 0,
      stdout: 'hi',
      stderr: '',
      timedOut: false,
      durationMs: 1,
    })
  })

  it.each([
    ['an end without a result', chunked('{"type":"stdout_delta","data":"hi"}\n')],
    ['an empty reply', chunked('{"type":"ping"}\n')],
    ['a result whose line does not end', chunked(RESULT.trim())],
    ['a connection that breaks off', `${head('transfer-encoding: chunked\r\n')}40\r\n{"type":"stdout_delta"`],
    ['no reply at all', ''],
    ['no HTTP', 'hello\r\n\r\n'],
    ['a line that is not JSON', chunked(`{"type":\n${RESULT}`)],
    ['a line that is no object', chunked(`null\n${RESULT}`)],
    ['an unknown event', chunked(`{"type":"exit","code":0}\n`)],
    ['a result without an exit code', chunked('{"type":"result","timedOut":false,"durationMs":1}\n')],
    ['an exit code that is none', chunked(RESULT.replace('0', '-1'))],
    ['an exit code out of range', chunked(RESULT.replace('0', '256'))],
    ['an exit code of text', chunked(RESULT.replace('0', '"0"'))],
    ['a signal that is none', chunked(RESULT.replace('"timedOut"', '"signal":"x\\n","timedOut"'))],
    ['a negative count', chunked(RESULT.replace('"timedOut"', '"stdoutTruncated":-5,"timedOut"'))],
    ['output of no kind', chunked(`{"type":"stdout_delta","data":5}\n${RESULT}`)],
    ['output in an unknown encoding', chunked(`{"type":"stdout_delta","data":"","encoding":"hex"}\n${RESULT}`)],
  ])('has an unknown outcome after %s', async (_what, reply) => {
    const client = await clientOf(reply)
    const failure = client.execute({ command: 'x' })
    await expect(failure).rejects.toMatchObject(LOST)
    await expect(failure).rejects.not.toThrow(TOKEN)
  })

  it('has an unknown outcome when a line has no end', async () => {
    const client = await clientOf(`${head()}${'x'.repeat(2 * 1024 * 1024)}`, { ends: false })
    await expect(client.execute({ command: 'x' })).rejects.toMatchObject(LOST)
  })

  it('has an unknown outcome when nothing comes any more', async () => {
    await expect((await clientOf('', { ends: false, silenceMs: 100 })).execute({ command: 'x' })).rejects.toMatchObject(
      LOST,
    )
    const started = `${head('transfer-encoding: chunked\r\n')}10\r\n{"type":"ping"}\n\r\n`
    await expect(
      (await clientOf(started, { ends: false, silenceMs: 100 })).execute({ command: 'x' }),
    ).rejects.toMatchObject(LOST)
  })

  it('that was refused has a known outcome and the reason, cleaned', async () => {
    const refusal = json(
      { error: { code: 'bad\ncode', message: `no\u001b[31m${'x'.repeat(2_000)}` } },
      '400 Bad Request',
    )
    await expect((await clientOf(refusal)).execute({ command: 'x' })).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_EXEC_FAILED',
      outcome: 'known',
      message: `no\uFFFD[31m${'x'.repeat(493)}`,
      cause: { code: 'internal' },
    })
  })

  it('that could not be sent has a known outcome', async () => {
    const broken = createWorkerClient({ token: TOKEN, connect: () => Promise.reject(new Error('no way')) })
    await expect(broken.execute({ command: 'x' })).rejects.toMatchObject({ ...LOST, outcome: 'known' })
    const never = createWorkerClient({ token: TOKEN, silenceMs: 50, connect: () => new Promise(() => undefined) })
    await expect(never.execute({ command: 'x' })).rejects.toMatchObject({ ...LOST, outcome: 'known' })
    const strange = await clientOf(json({ error: { code: 'unauthorized' } }, '401 Unauthorized'))
    await expect(strange.execute({ command: 'x' })).rejects.toMatchObject({ ...LOST, outcome: 'known' })
  })

  it('keeps of a flood what was asked for, whatever the worker was told', async () => {
    const client = await clientOf(
      chunked(`{"type":"stdout_delta","data":"${'ä'.repeat(100)}"}\n{"type":"stdout_delta","data":"b"}\n${RESULT}`),
    )
    expect(await client.execute({ command: 'x', maxOutputBytes: 5 })).toMatchObject({
      stdout: 'ää',
      stdoutTruncated: 197,
    })
  })
})

describe('output without end, from a worker that nobody trusts', () => {
  it('is kept of a background process as far as a worker would have kept it', async () => {
    const line = `{"type":"stdout_delta","data":"${'x'.repeat(512 * 1024)}"}\n`
    const client = await clientOf(chunked(`${line.repeat(40)}${RESULT}`))
    const { stdout, stdoutTruncated } = await client.wait('one')
    expect([stdout.length, stdoutTruncated]).toEqual([16 * 1024 * 1024, 4 * 1024 * 1024])
  })

  it.each([
    ['pieces of nothing', { data: '' }, ''],
    ['single bytes', { data: 'x' }, 'x'.repeat(300_000)],
    ['single bytes that are no text', { data: '/w==', encoding: 'base64' }, '\uFFFD'.repeat(300_000)],
  ] as const)('costs no more than its bytes: %s', async (_what, piece, stdout) => {
    const before = usedBytes()
    let cost = 0
    async function* events(): AsyncGenerator<WireEvent> {
      await Promise.resolve()
      for (let sent = 0; sent < 300_000; sent++) yield { type: 'stdout_delta', ...piece }
      cost = usedBytes() - before
      yield { type: 'result', exitCode: 0, timedOut: false, durationMs: 1 }
    }
    const result = await collect(events(), 10 * 1024 * 1024)
    expect(result.stdout === stdout).toBe(true)
    // An object for each would be 30 MB.
    expect(cost).toBeLessThan(10 * 1024 * 1024)
  })
})

describe('a file', () => {
  it.each([
    ['shorter than its length', `${head('content-length: 10\r\n')}short`],
    ['without a length', chunked('data')],
    ['with a reply that is no HTTP', 'x\r\n\r\n'],
  ])('is not read when it is %s', async (_what, reply) => {
    await expect((await clientOf(reply)).readFile('/x')).rejects.toMatchObject(LOST)
  })

  it('that claims to be huge takes no memory', async () => {
    const client = await clientOf(`${head('content-length: 99999999999\r\n')}x`, { ends: false })
    await expect(client.readFile('/x')).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_FILE_FAILED',
      cause: { code: 'too_large' },
    })
  })

  it.each([
    ['no end', '{"type":"file","path":"/a","size":1}\n'],
    ['entries missing', '{"type":"file","path":"/a","size":1}\n{"type":"end","count":2}\n'],
    ['a relative path', '{"type":"file","path":"a","size":1}\n{"type":"end","count":1}\n'],
    ['a negative size', '{"type":"file","path":"/a","size":-1}\n{"type":"end","count":1}\n'],
  ])('is not listed by a list with %s', async (_what, lines) => {
    await expect((await clientOf(chunked(lines))).listFiles()).rejects.toMatchObject(LOST)
  })

  it.each([[{}], [{ stat: 5 }], [{ stat: { path: '/a', kind: 'door', size: 1, mode: 1, modifiedMs: 1 } }]])(
    'has no state in %j',
    async (reply) => {
      await expect((await clientOf(json(reply))).stat('/a')).rejects.toMatchObject(LOST)
    },
  )
})

it('a short reply that is long is not read to its end', async () => {
  const client = await clientOf(`${head()}{"x":"${'x'.repeat(1024 * 1024)}`, { ends: false })
  await expect(client.health()).rejects.toMatchObject(LOST)
})

it.each([[{}], [{ node: 'v1', rootDir: 'relative', protocol: 1 }], [{ node: 5, rootDir: '/', protocol: 1 }]])(
  'health that makes no sense is none: %j',
  async (reply) => {
    await expect((await clientOf(json(reply))).health()).rejects.toMatchObject(LOST)
  },
)

it('a process id from a worker is checked before it is used in a path', async () => {
  await expect((await clientOf(json({ id: '../configure' }))).spawn({ command: 'x' })).rejects.toMatchObject(LOST)
})
