/** Telling the dialects apart by their first bytes. */
import { describe, expect, test } from 'vitest'
import { sniff } from '../../../proxy/dialects/dialect.ts'

const sniffText = (text: string) => sniff(Buffer.from(text, 'latin1'))

describe('the first bytes', () => {
  test.each([
    ['', 'more'],
    ['C', 'more'],
    ['CONNECT', 'more'],
    ['CONNECT ', 'connect'],
    ['CONNECT a:1 HTTP/1.1\r\n', 'connect'],
    ['CONNECTED', 'http'],
    ['CONNECT\t', 'http'],
    ['COPY http://a/', 'http'],
    ['connect a:1', 'http'],
    ['G', 'http'],
    ['GET http://a/ HTTP/1.1', 'http'],
    ['PRI * HTTP/2.0', 'http'],
    ['\x05', 'socks5'],
    ['\x05\x01\x00', 'socks5'],
    ['\x04\x01\x00\x50', 'unknown'],
    ['\x16\x03\x01', 'unknown'],
    ['\x00\x01', 'unknown'],
    ['\r\nGET / HTTP/1.1', 'unknown'],
    [' CONNECT', 'unknown'],
    ['\xff', 'unknown'],
    ['@', 'unknown'],
    ['[', 'unknown'],
  ])('%j are %s', (text, dialect) => {
    expect(sniffText(text)).toBe(dialect)
  })

  test('once told, more bytes change nothing', () => {
    for (const text of [
      'CONNECT a:1 HTTP/1.1',
      'GET http://a/ HTTP/1.1',
      'CONNECTS x',
      '\x05\x02\x00\x02',
      '\x16\x03\x01\x00',
    ]) {
      const whole = sniffText(text)
      for (let size = 1; size <= text.length; size++) expect([whole, 'more']).toContain(sniffText(text.slice(0, size)))
    }
  })
})
