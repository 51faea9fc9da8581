/** Bodies at the pace of the limits, and what is left of one that nobody wants any more. */
import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { expect, test } from 'vitest'
import { paced } from '../../../proxy/dialects/paced.ts'

const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length

test('without a pace the source is what is read', () => {
  const source = new PassThrough()
  expect(paced(source, undefined)).toBe(source)
})

test('what waits comes in order, and the end after it', async () => {
  const source = new PassThrough()
  const told: number[] = []
  const body = paced(source, (bytes) => told.push(bytes))
  for (const piece of ['one', 'three', 'two']) source.write(piece)
  source.end()
  let text = ''
  body.on('data', (chunk: Buffer) => (text += chunk.toString()))
  await once(body, 'end')
  expect([text, told]).toEqual(['onethreetwo', [3, 5, 3]])
})

test('nothing is kept of a piece that waits, once nobody wants it', async () => {
  const source = new PassThrough()
  const body = paced(source, () => 2 ** 31 - 1)
  source.write('x')
  await new Promise((resolve) => setImmediate(resolve))
  const waiting = timers()
  body.destroy()
  await once(body, 'close')
  expect(timers()).toBe(waiting - 1)
})
