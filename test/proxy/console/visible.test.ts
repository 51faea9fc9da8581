/** What can't be seen is shown, and nothing else is changed. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { piecesOf, visible } from '../../../proxy/console/visible.ts'

test.each([
  ['an ordinary host', 'api.example.com:443', 'api.example.com:443'],
  ['markup, which is text', '<img src=x onerror=alert(1)>', '<img src=x onerror=alert(1)>'],
  ['letters of any script', 'пример.שלום.例', 'пример.שלום.例'],
  ['text that is turned around', 'evil\u202egnp.exe', 'evil‹U+202E›gnp.exe'],
  ['isolates and marks of direction', 'a\u2066b\u2069\u200f\u061c', 'a‹U+2066›b‹U+2069›‹U+200F›‹U+061C›'],
  ['what has no width', 'a\u200bb\u200dc\ufeff\u2060', 'a‹U+200B›b‹U+200D›c‹U+FEFF›‹U+2060›'],
  [
    'ends of lines and other controls',
    'a\r\n\tb\u0000\u001b[31m\u0085',
    'a‹U+000D›‹U+000A›‹U+0009›b‹U+0000›‹U+001B›[31m‹U+0085›',
  ],
  ['separators of lines', 'a\u2028b\u2029', 'a‹U+2028›b‹U+2029›'],
  ['blanks that are no space', 'a\u00a0b\u3000c d', 'a‹U+00A0›b‹U+3000›c d'],
  ['letters that are drawn as nothing', 'a\u3164b\u115fc\u2800', 'a‹U+3164›b‹U+115F›c‹U+2800›'],
  ['a soft hyphen and a combining joiner', 'a\u00adb\u034f', 'a‹U+00AD›b‹U+034F›'],
  ['tags that hide a text', 'a\u{e0041}', 'a‹U+E0041›'],
  ['half a character', 'a\ud800b', 'a‹U+D800›b'],
])('%s', (_what, text, shown) => {
  expect(visible(text)).toBe(shown)
})

const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]/u

describe('any text', () => {
  test('has nothing unseen in it when it is shown, and all that could be seen before', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(visible(text)).not.toMatch(UNSEEN)
        const seen = piecesOf(text).filter(({ isUnseen }) => !isUnseen)
        let from = 0
        for (const { text: piece } of seen) {
          const at = text.indexOf(piece, from)
          expect(at).toBeGreaterThanOrEqual(from)
          from = at + piece.length
        }
      }),
    )
  })
})
