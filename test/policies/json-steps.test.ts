/** That JSON in steps is the JSON that everybody else writes: versions of policies and files are made of it. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { finish, jsonSteps } from '../../policies/index.ts'

test('the text is that of JSON.stringify, whatever the data', () => {
  const odd = fc.constantFrom(
    undefined,
    () => 1,
    Symbol('s'),
    -0,
    NaN,
    Infinity,
    new Date(0),
    '\ud800',
    '\u2028"\\',
    [],
  )
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.jsonValue(),
      odd,
      fc.array(tie('value')),
      fc.dictionary(fc.string(), tie('value')),
    ),
  }))
  fc.assert(
    fc.property(value, (data) => finish(jsonSteps(data)) === ((JSON.stringify(data) as string | undefined) ?? 'null')),
  )
})

test('lists of any length are the same text, in steps', () => {
  for (const length of [0, 1, 49, 50, 51, 1999, 2000, 2001, 10_000])
    for (const member of ['name.example.test', 7, null, { a: 1 }, ['x'], undefined]) {
      const data = { list: Array.from({ length }, () => member), after: [{ list: [member] }] }
      expect(finish(jsonSteps(data))).toBe(JSON.stringify(data))
    }
  expect([...jsonSteps(Array.from({ length: 100_000 }, (_none, at) => `h${at}.example.test`))]).toHaveLength(50)
})
