import { expect, it } from 'vitest'
import { endOfTurn } from '../../proxy/end-of-turn.ts'

it('is one moment for all who ask in one turn, and another in the next', async () => {
  const first = endOfTurn()
  expect(endOfTurn()).toBe(first)
  await first
  expect(endOfTurn()).not.toBe(first)
  await endOfTurn()
})

it('goes on with all who asked, in their order, before anything that was put off later', async () => {
  const seen: string[] = []
  const note = (what: string) => () => void seen.push(what)
  setImmediate(note('put off before'))
  const all = ['one', 'two', 'three'].map((name) => endOfTurn().then(note(name)))
  const later = new Promise<void>((resolve) =>
    setImmediate(() => {
      seen.push('put off later')
      resolve()
    }),
  )
  await Promise.all([...all, later])
  expect(seen).toEqual(['put off before', 'one', 'two', 'three', 'put off later'])
})

it('gives many who ask in one turn several turns, in their order, and leaves room for others in between', async () => {
  const seen: (number | 'other')[] = []
  const all = Array.from({ length: 100 }, (_, index) => endOfTurn().then(() => void seen.push(index)))
  const others = (async () => {
    for (let turn = 0; turn < 3; turn++) {
      await new Promise((resolve) => setImmediate(resolve))
      seen.push('other')
    }
  })()
  await Promise.all([...all, others])
  expect(seen.filter((each) => each !== 'other')).toEqual(Array.from({ length: 100 }, (_, index) => index))
  const [first, second, third] = seen.flatMap((each, at) => (each === 'other' ? [at] : []))
  expect([first, second, third]).toEqual([32, 65, 98])
})
