import { describe, expect, it } from 'vitest'
import { parseHostName } from '../../policies/index.ts'
import { codeOf } from './make.ts'

describe('parseHostName on the wire', () => {
  it.each([
    ['a name in upper case is folded', 'API.Example.COM', 'api.example.com'],
    ['one trailing dot is stripped', 'example.com.', 'example.com'],
    ['hyphens may stand anywhere, also third and fourth', 'r3---sn-x.example.com', 'r3---sn-x.example.com'],
    ['a label may be a number when it is not the last', '1.2.3.4.example', '1.2.3.4.example'],
    ['a last label may begin with a digit', 'example.3com', 'example.3com'],
    ['a right-to-left A-label is kept', 'xn--4dbrk0ce.example', 'xn--4dbrk0ce.example'],
    ['an A-label may be the last label', 'example.xn--p1ai', 'example.xn--p1ai'],
    ['xn-- inside a label is no A-label', 'a-xn--b.example', 'a-xn--b.example'],
  ])('%s', (_sentence, text, canonical) => {
    expect(parseHostName(text)).toEqual({ ok: true, value: canonical })
  })

  it.each([
    ['an empty name', '', 'empty'],
    ['a lone dot', '.', 'empty'],
    ['two trailing dots', 'example.com..', 'empty_label'],
    ['a label of 64', `${'a'.repeat(64)}.example`, 'length'],
    ['a last label of 64', `example.${'a'.repeat(64)}`, 'length'],
    ['a name of 254', `${'a'.repeat(62)}.${'a'.repeat(63)}.${'a'.repeat(63)}.${'a'.repeat(63)}`, 'length'],
    ['a last label of digits', 'example.123', 'address'],
    ['a last label of digits before a trailing dot', 'example.123.', 'address'],
    ['a last label that begins 0x', 'example.0x', 'address'],
    ['a last label that begins 0X', 'example.0XFF', 'address'],
    ['a Unicode letter', 'b\u00fccher.example', 'unicode'],
    ['the Kelvin sign, which folds to k', '\u212aelvin.example', 'unicode'],
    ['the long s, which folds to s', '\u017f.example', 'unicode'],
    ['a colon', 'a:b', 'character'],
    ['an A-label of an upper-case letter', 'xn--bcher-2pa.example', 'a_label'],
    ['an A-label of a full-width letter', 'xn--mi7c.example', 'a_label'],
    ['an A-label of a letter and a combining accent', 'xn--e-xbb.example', 'a_label'],
    ['an A-label that hides an ideographic full stop', 'xn--ab-r13a.example', 'a_label'],
    ['an A-label that overflows', 'xn--99999999999999.example', 'a_label'],
    ['a right-to-left label beside a left-to-right one that begins with a digit', '1.xn--4dbrk0ce', 'a_label'],
  ])('%s is refused', (_sentence, text, code) => {
    expect(codeOf(parseHostName(text))).toBe(code)
  })
})

describe('parseHostName in files', () => {
  it.each([
    ['a Unicode name becomes A-labels', 'B\u00dcCHER.example', 'xn--bcher-kva.example'],
    ['the ideographic full stop becomes a dot', 'example\u3002com', 'example.com'],
    ['sharp s is kept, not spelled ss', 'stra\u00dfe.example', 'xn--strae-oqa.example'],
  ])('%s', (_sentence, text, canonical) => {
    expect(parseHostName(text, { unicode: true })).toEqual({ ok: true, value: canonical })
  })

  it.each([
    ['full-width digits that become an address', '\uff11\uff12\uff17.0.0.1', 'address'],
    ['a sign that becomes a slash', '\u2100.example', 'character'],
    ['a full-width star', '\uff0a.example.com', 'character'],
    ['a lone joiner', '\u200d.example', 'unicode'],
    ['nothing but an ignored character', '\u00ad', 'empty'],
    ['a label that is too long as A-label', `${'\u00fc'.repeat(63)}.example`, 'length'],
  ])('%s is refused', (_sentence, text, code) => {
    expect(codeOf(parseHostName(text, { unicode: true }))).toBe(code)
  })
})
