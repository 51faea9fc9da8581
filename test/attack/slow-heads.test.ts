/** Heads that cost more the longer they are: whoever has no token yet may send them, so each is read once over. */
import { expect, test } from 'vitest'
import { MAX_HEAD_BYTES, parseConnectHead } from '../../proxy/dialects/connect-head.ts'
import { parseAbsoluteTarget } from '../../proxy/dialects/http-target.ts'
import { readProxyAuthorization } from '../../proxy/tokens/credentials.ts'

const LONG = MAX_HEAD_BYTES - 200

const attempts: readonly (readonly [string, (units: number) => unknown])[] = [
  ['blanks in the middle of credentials', (units) => parseConnectHead(Buffer.from(`CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: a${'\t'.repeat(units)}b\r\n\r\n`))], // prettier-ignore
  ['blanks in a header of another name', (units) => parseConnectHead(Buffer.from(`CONNECT a:1 HTTP/1.1\r\ntraceparent: a${' '.repeat(units)}b\r\n\r\n`))], // prettier-ignore
  ['blanks that credentials are read from', (units) => readProxyAuthorization(`a${'\t'.repeat(units)}b`)],
  ['a target without a scheme', (units) => parseAbsoluteTarget('GET', `a${'\t'.repeat(units)}b`)],
  ['a target of signs that could be a user', (units) => parseAbsoluteTarget('GET', `http://${'a'.repeat(units)}\t`)],
]

test.each(attempts)('%s cost no more for their length', (_what, read) => {
  // Warm, and the shortest of several: what is measured is the reading.
  const costMs = (units: number): number =>
    Math.min(
      ...Array.from({ length: 5 }, () => {
        const from = process.cpuUsage()
        for (let round = 0; round < 4; round++) read(units)
        const { user, system } = process.cpuUsage(from)
        return (user + system) / 1000
      }),
    )
  // Once over is some tens of microseconds; from each character again would be a second.
  expect(costMs(LONG)).toBeLessThan(100)
})

test('what is around a value is taken off, and what is inside stays', () => {
  const head = parseConnectHead(Buffer.from('CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: \t x \t y\t \r\n\r\n'))
  expect(head).toMatchObject({ state: 'done', proxyAuthorization: 'x \t y' })
  expect(parseAbsoluteTarget('GET', 'user:secret@a/b@c')).toMatchObject({ requested: '***@a/***@c' })
})
