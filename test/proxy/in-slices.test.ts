import { expect, test } from 'vitest'
import { createPolicySource } from '../../proxy/policy/policy-source.ts'
import { inSlices, piecesInSlices } from '../../proxy/in-slices.ts'

/** Counts the turns that others get until the result is called. */
function countTurns(): () => number {
  let turns = 0
  let isOver = false
  const count = () => {
    turns++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  return () => {
    isOver = true
    return turns
  }
}

test('long work leaves turns to others, and gives its result', async () => {
  const turnsOfOthers = countTurns()
  const source = createPolicySource({ policy: { ceiling: { kind: 'allow-all' } } })
  const allowedHosts = Array.from({ length: 60_000 }, (_, index) => `host-${index}.example.com`)
  const checked = await source.checkTenant({ kind: 'static', allowedHosts })
  const turns = turnsOfOthers()
  source.close()
  expect(checked.ok && checked.value.layer).toMatchObject({ kind: 'static', allowedHosts })
  // At two milliseconds a slice: as a whole it takes a hundred and more on any machine.
  expect(turns).toBeGreaterThan(10)
})

test('what the work throws is what waits for it gets', async () => {
  function* failing() {
    yield
    throw new RangeError('no further')
  }
  await expect(inSlices(failing())).rejects.toThrow(new RangeError('no further'))
})

test('pieces come in their order, and whoever takes them all at once leaves turns to others', async () => {
  const turnsOfOthers = countTurns()
  function* slow() {
    for (let piece = 0; piece < 20; piece++) {
      const untilMs = performance.now() + 3
      while (performance.now() < untilMs);
      yield piece
    }
  }
  const taken: number[] = []
  for await (const piece of piecesInSlices(slow())) taken.push(piece)
  const turns = turnsOfOthers()
  expect(taken).toEqual(Array.from({ length: 20 }, (_, piece) => piece))
  expect(turns).toBeGreaterThan(10)
})
