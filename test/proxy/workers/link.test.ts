/** What a compromised worker may send: nothing that costs the other side more than it allowed for. */
import { duplexPair } from 'node:stream'
import { describe, expect, test } from 'vitest'
import { openLink } from '../../../proxy/workers/link.ts'
import { packUsage, readFromWorker } from '../../../proxy/workers/protocol.ts'

function frame(bytes: Buffer | string, size = Buffer.byteLength(bytes)): Buffer {
  const head = Buffer.alloc(4)
  head.writeUInt32BE(size)
  return Buffer.concat([head, Buffer.from(bytes)])
}

/** What came over a link that reads messages of 1,000 bytes, and how it ended. */
function listening(onMessage: (message: unknown) => void = () => undefined) {
  const [ours, theirs] = duplexPair()
  const messages: unknown[] = []
  const ended = new Promise<string | undefined>((resolve) => {
    openLink(ours, {
      onMessage: (message) => {
        onMessage(message)
        messages.push(message)
      },
      onEnd: resolve,
      longest: 1_000,
      longestSent: 1_000,
    })
  })
  return { theirs, messages, ended }
}

describe('a link', () => {
  test('takes messages in order, however they are cut', async () => {
    const { theirs, messages } = listening()
    const bytes = Buffer.concat([frame('{"one":1}'), frame('"two"'), frame('[3,"ü"]')])
    for (const byte of bytes) theirs.write(Buffer.of(byte))
    theirs.write(bytes)
    const once = [{ one: 1 }, 'two', [3, 'ü']]
    await expect.poll(() => messages).toEqual([...once, ...once])
  })

  test('ends before it reads a message that is longer than it may be', async () => {
    const { theirs, ended, messages } = listening()
    theirs.write(frame('x', 0xffff_ffff))
    expect(await ended).toBe('sent a message of 4294967295 bytes, and 1000 is the most')
    expect(messages).toEqual([])
  })

  test('ends at what is no message, and takes nothing after it', async () => {
    const { theirs, ended, messages } = listening()
    theirs.write(Buffer.concat([frame('{"a":'), frame('"after"')]))
    expect(await ended).toBe('sent what is no message')
    expect(messages).toEqual([])
  })

  test('ends at what its owner does not take', async () => {
    const { theirs, ended } = listening((message) => void readFromWorker(message))
    theirs.write(frame('{"kind":"usage","changes":[["k",0,1,1,-5,0]]}'))
    expect(await ended).toBe('sent what is no message')
  })

  test('says when the other side is gone', async () => {
    const { theirs, ended } = listening()
    theirs.end()
    expect(await ended).toBeUndefined()
  })

  test('does not send what the other side would not read, and gives up one that reads nothing', async () => {
    const [ours] = duplexPair()
    const ended = new Promise<string | undefined>((resolve) => {
      const limits = { longest: 1_000, longestSent: 1024 * 1024 }
      const link = openLink<string>(ours, { onMessage: () => undefined, onEnd: resolve, ...limits })
      expect(() => link.send('x'.repeat(1024 * 1024))).toThrow(RangeError)
      for (let sent = 0; sent < 100; sent++) link.send('x'.repeat(1024 * 1024 - 2))
    })
    expect(await ended).toBe('does not read what it is sent')
  })
})

describe('what a worker says', () => {
  const bad: readonly (readonly [string, unknown])[] = [
    ['nothing', null],
    ['another kind', { kind: 'start', start: {} }],
    ['a field more', { kind: 'open', also: 1 }],
    ['no list', { kind: 'usage', changes: 'all' }],
    ['a change that is short', { kind: 'usage', changes: [['k', 0, 1]] }],
    ['bytes given back', { kind: 'usage', changes: [['k', 0, 0, 0, -1, 0]] }],
    ['no number', { kind: 'usage', changes: [['k', 0, null, 0, 0, 0]] }],
    ['a key of any length', { kind: 'usage', changes: [['k'.repeat(20_000), 0, 0, 0, 0, 0]] }],
    ['too many', { kind: 'usage', changes: Array.from({ length: 2_001 }, () => ['k', 0, 0, 0, 0, 0]) }],
    ['tunnels below none', { kind: 'beat', tunnels: -1, notReady: [] }],
    ['reasons without end', { kind: 'beat', tunnels: 1, notReady: Array.from({ length: 17 }, () => 'x') }],
  ]

  test.each(bad)('is refused: %s', (_what, message) => {
    expect(() => readFromWorker(message)).toThrow()
  })

  test('of names as long as tokens may have them is never more than may be said', () => {
    const key = JSON.stringify(['\u0001'.repeat(512), '\u0002'.repeat(512), 'sandbox', '\u0003'.repeat(512)])
    const changes = Array.from({ length: 3_000 }, (_none, index) => ({
      key: `${key}${index}`,
      isTenant: false,
      tunnels: 1,
      opened: 1,
      bytes: 1,
      paced: 0,
    }))
    const messages = [...packUsage(changes)]
    expect(messages.flat()).toHaveLength(3_000)
    for (const packed of messages) {
      const text = JSON.stringify({ kind: 'usage', changes: packed })
      expect(text.length).toBeLessThan(2 * 1024 * 1024)
      expect(readFromWorker(JSON.parse(text))).toMatchObject({ kind: 'usage' })
    }
  })
})
