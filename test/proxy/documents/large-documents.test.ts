/** Documents that are meant to keep a gateway from its work: none does, none is read in part, and each has an end. */
import { describe, expect, it } from 'vitest'
import { LargeDocuments } from '../../../proxy/documents/large-documents.ts'
import type { DocumentKind } from '../../../proxy/documents/parse-document.ts'

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
const reader = new LargeDocuments()
const read = (kind: DocumentKind, text: string) => reader.read(kind, bytes(text))

describe('a large document', () => {
  it.each<[string, unknown]>([
    ['a list', Array.from({ length: 50_000 }, (_none, at) => `h${at}.example.test`)],
    ['maps in maps', { a: { b: [1, 'x', true, null, {}, []] }, long: 'x'.repeat(100_000), c: [[], [[]]] }],
    ['a text', 'x'.repeat(100_000)],
  ])('that is %s is what it was', async (_title, value) => {
    expect(await read('json', JSON.stringify(value))).toEqual(value)
  })

  it('of YAML is what it was', async () => {
    const names = Array.from({ length: 2000 }, (_none, at) => `h${at}.example.test`)
    expect(await read('yaml', `allowedHosts:\n${names.map((name) => `  - ${name}\n`).join('')}`)).toEqual({
      allowedHosts: names,
    })
  })

  it('does not keep the event loop: it turns while the thread reads', async () => {
    let turns = 0
    const timer = setInterval(() => turns++, 1)
    await read('yaml', Array.from({ length: 20_000 }, (_none, at) => `- h${at}.example.test\n`).join(''))
    clearInterval(timer)
    expect(turns).toBeGreaterThan(10)
  })
})

describe('hostile documents', () => {
  const bomb = Array.from({ length: 12 }, (_none, at) => `a${at + 1}: &a${at + 1} [${`*a${at}, `.repeat(19)}*a${at}]`)
  it.each<[string, DocumentKind, string, string]>([
    ['an aliases bomb', 'yaml', `a0: &a0 x\n${bomb.join('\n')}\n`, 'aliases'],
    [
      'few aliases of much',
      'yaml',
      `${'# '.repeat(600)}\na0: &a0 x\n${bomb.map((line) => line.replace(/\[.*\]/, (list) => list.split(', ').slice(0, 9).join(', ') + ']')).join('\n')}\n`,
      'not_yaml',
    ],
    ['brackets, never closed', 'json', '['.repeat(200_000), 'not_json'],
    ['depth', 'json', `${'['.repeat(5000)}1${']'.repeat(5000)}${' '.repeat(100_000)}`, 'too_deep'],
    ['depth of maps', 'json', `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`, 'too_deep'],
    ['a prototype', 'json', `{"__proto__":{"isAdmin":true},"x":"${'x'.repeat(100_000)}"}`, 'name'],
    ['no UTF-8', 'json', '', 'not_utf8'],
    ['a key twice', 'yaml', `a: 1\n${'# x\n'.repeat(1000)}a: 2\n`, 'not_yaml'],
    ['half of a document', 'json', `["${'x'.repeat(100_000)}"`, 'not_json'],
  ])('%s', async (title, kind, text, code) => {
    const given = title === 'no UTF-8' ? new Uint8Array(100_000).fill(0xff) : bytes(text)
    await expect(reader.read(kind, given)).rejects.toMatchObject({ code })
    expect({}).not.toHaveProperty('isAdmin')
    expect(await read('json', JSON.stringify({ still: 'x'.repeat(70_000) }))).toHaveProperty('still')
  })

  it('what takes too long is given up, and the next one is read', async () => {
    const hasty = new LargeDocuments({ longestMs: 1 })
    await expect(hasty.read('yaml', bytes('['.repeat(300_000)))).rejects.toMatchObject({ code: 'too_long' })
    expect(await read('json', JSON.stringify(['x'.repeat(70_000)]))).toHaveLength(1)
  })

  it('a thread that dies is a fault, and there is another one', async () => {
    const dying = new LargeDocuments({
      program: new URL(
        'data:text/javascript,import { parentPort } from "node:worker_threads"; parentPort.on("message", () => process.exit(7))',
      ),
    })
    const large = bytes(JSON.stringify(['x'.repeat(70_000)]))
    await expect(dying.read('json', large)).rejects.toMatchObject({ code: 'ended' })
    await expect(dying.read('json', large)).rejects.toMatchObject({ code: 'ended' })
  })

  it('two at once are read one after the other; beyond a bound they are refused, but for the operator’s own', async () => {
    const fresh = new LargeDocuments({ mostWaitingBytes: 8 * 100_100 })
    const one = (at: number, isOwn?: boolean) =>
      fresh.read('json', bytes(JSON.stringify({ at, filler: 'x'.repeat(100_000) })), isOwn)
    const waiting = Promise.allSettled(Array.from({ length: 12 }, (_none, at) => one(at)))
    expect(await one(50, true)).toHaveProperty('at', 50)
    const outcomes = await waiting
    expect(
      outcomes.slice(0, 8).map((outcome) => outcome.status === 'fulfilled' && (outcome.value as { at: number }).at),
    ).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    for (const outcome of outcomes.slice(8)) expect(outcome).toMatchObject({ reason: { code: 'busy' } })
    expect(await one(99)).toHaveProperty('at', 99)
  })

  it('answers of forty tenants at once are all read', async () => {
    const fresh = new LargeDocuments()
    const texts = Array.from({ length: 40 }, (_none, at) => JSON.stringify([at, 'x'.repeat(100_000)]))
    const values = await Promise.all(texts.map((text) => fresh.read('json', bytes(text))))
    expect(values.map((value) => (value as number[])[0])).toEqual(texts.map((_text, at) => at))
  })
})
