/** File names between bytes and text. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { pathText, queryField, rawPath, rawToQuery } from '../../../provider/worker/path-text.ts'

const anyName = fc
  .uint8Array({ minLength: 1 })
  .map((bytes) => Buffer.from(bytes.map((byte) => byte || 1)).toString('latin1'))

describe('a name', () => {
  it('of any bytes survives text, JSON and a query', () => {
    fc.assert(
      fc.property(anyName, (raw) => {
        expect(rawPath(pathText(raw))).toBe(raw)
        expect(rawPath(JSON.parse(JSON.stringify(pathText(raw))) as string)).toBe(raw)
        expect(queryField(`/files?x=1&path=${rawToQuery(raw)}&mode=644`, 'path')).toBe(raw)
      }),
    )
  })

  it('that is UTF-8 reads as itself', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme' }).filter((text) => !text.includes('\0')),
        (text) => {
          expect(pathText(rawPath(text)!)).toBe(text)
        },
      ),
    )
  })

  it('shows each byte that does not belong', () => {
    expect(pathText('a\xff\xc3(')).toBe('a\udcff\udcc3(')
    expect(pathText('\xed\xa0\x80')).toBe('\udced\udca0\udc80')
    expect(pathText('\xc0\xaf')).toBe('\udcc0\udcaf')
  })

  it('cannot hold NUL or a surrogate that stands for no byte', () => {
    for (const text of ['\0', 'a\ud800', '\udc41', '\udbff\ue000']) expect(rawPath(text)).toBeUndefined()
  })

  it('in a query takes a plus for a plus', () => {
    expect(queryField('/files?path=a+b', 'path')).toBe('a+b')
    expect(queryField('/files', 'path')).toBeUndefined()
    expect(queryField('/files?pathology=1', 'path')).toBeUndefined()
  })
})
