/** What a supervisor says is told from what its command says, wherever the pieces begin and end. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createMarkedText, type MarkedPiece } from '../../../provider/backends/e2b/marked-text.ts'
import { shellLine } from '../../../provider/backends/e2b/shell-words.ts'
import { spawnSync } from 'node:child_process'

const MARK = 'aabbcc'
const said = (words: string): string => `\x1e${MARK}:${words}\x1e`

/** Neighbouring texts joined. */
function read(pieces: readonly string[]): readonly (string | readonly string[])[] {
  const marked = createMarkedText(MARK)
  const found: MarkedPiece[] = pieces.flatMap((piece) => marked.push(piece))
  const all: (string | readonly string[])[] = []
  for (const piece of [...found, { text: marked.rest() }]) {
    if ('words' in piece) all.push(piece.words)
    else if (typeof all.at(-1) === 'string') all[all.length - 1] = `${all.at(-1) as string}${piece.text}`
    else if (piece.text !== '') all.push(piece.text)
  }
  return all
}

test('every split of a stream gives the same pieces', () => {
  const whole = `noise${said('begin 12')}out\x1eput \x1eaabb more${said('end 3 0 0')}late`
  const expected = ['noise', ['begin', '12'], 'out\x1eput \x1eaabb more', ['end', '3', '0', '0'], 'late']
  for (let at = 0; at <= whole.length; at++) expect(read([whole.slice(0, at), whole.slice(at)])).toEqual(expected)
  expect(read(whole.split(/(?=.)/su))).toEqual(expected)
})

test('what is no mark is text, however it looks, and is never held for good', () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ unit: fc.constantFrom('\x1e', 'a', 'b', 'c', ':', 'x'), maxLength: 20 })),
      (pieces) => {
        const whole = pieces.join('')
        fc.pre(!whole.includes(`\x1e${MARK}:`))
        expect(read(pieces).join('')).toBe(whole)
      },
    ),
  )
  const endless = `\x1e${MARK}:${'x'.repeat(5_000)}`
  expect(read([endless])).toEqual([endless])
})

test('words arrive through a shell as they are', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.string({ unit: 'binary' }).filter((word) => !word.includes('\0')),
        { minLength: 1, maxLength: 5 },
      ),
      (words) => {
        const line = shellLine(['printf', '%s\\0', ...words]) ?? ''
        const { stdout } = spawnSync('/bin/bash', ['-c', line])
        expect(stdout.toString()).toBe(words.map((word) => `${word}\0`).join(''))
      },
    ),
    { numRuns: 60 },
  )
  expect(shellLine(['x'.repeat(200_000)])).toBeUndefined()
})
