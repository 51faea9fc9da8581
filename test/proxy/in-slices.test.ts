import { expect, test } from 'vitest'
import { createPolicySource } from '../../proxy/policy/policy-source.ts'
import { inSlices } from '../../proxy/in-slices.ts'

test('long work leaves turns to others, and gives its result', async () => {
  let turns = 0
  let isOver = false
  const count = () => {
    turns++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  const source = createPolicySource({ policy: { ceiling: { kind: 'allow-all' } } })
  const allowedHosts = Array.from({ length: 60_000 }, (_, index) => `host-${index}.example.com`)
  const checked = await source.checkTenant({ kind: 'static', allowedHosts })
  isOver = true
  source.close()
  expect(checked.ok && checked.value.layer).toMatchObject({ kind: 'static', allowedHosts })
  // At five milliseconds a slice: as a whole it takes a hundred and more on any machine.
  expect(turns).toBeGreaterThan(10)
})

test('what the work throws is what waits for it gets', async () => {
  function* failing() {
    yield
    throw new RangeError('no further')
  }
  await expect(inSlices(failing())).rejects.toThrow(new RangeError('no further'))
})
