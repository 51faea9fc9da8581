/** The number of the first process is taken out of standard error, and nothing else is. */
import { expect, test } from 'vitest'
import { createLeaderReader } from '../../../provider/cli/leader.ts'

const read = (chunks: readonly string[]) => {
  const reader = createLeaderReader()
  return { reader, text: chunks.map((chunk) => Buffer.from(reader.push(Buffer.from(chunk))).toString()).join('') }
}
const whole = 'sallyport-leader 42\nfirst\nsallyport-leader 43\n'

test('at every split of what comes', async () => {
  for (let at = 0; at <= whole.length; at++) {
    const { reader, text } = read([whole.slice(0, at), whole.slice(at)])
    expect(text).toBe('first\nsallyport-leader 43\n')
    expect(await reader.leader).toBe(42)
  }
})

test.each([
  ['a fault of the shell', 'sh: not found\nmore'],
  ['a number that is none', 'sallyport-leader x\nmore'],
  ['a number that stands for everybody', 'sallyport-leader 1\nmore'],
  ['a line without an end', 'x'.repeat(1000)],
])('%s is passed on', (_name, text) => {
  expect(read([text]).text).toBe(text)
})
