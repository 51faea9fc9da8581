import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { newSpanId, newTraceId, parseTraceparent } from '../../../proxy/tracing/trace-context.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'

describe('a traceparent', () => {
  test.each([
    ['of this version, sampled', `00-${TRACE}-${PARENT}-01`],
    ['of this version, not sampled', `00-${TRACE}-${PARENT}-00`],
    ['with flags that nobody knows yet', `00-${TRACE}-${PARENT}-ff`],
    ['of a later version', `01-${TRACE}-${PARENT}-01`],
    ['of a later version that says more', `cc-${TRACE}-${PARENT}-01-what-the-future-will-be-like`],
  ])('%s is read', (_sentence, text) => {
    expect(parseTraceparent(text)).toEqual({ traceId: TRACE, parentId: PARENT })
  })

  test.each([
    ['none', undefined],
    ['an empty one', ''],
    ['one of this version that says more', `00-${TRACE}-${PARENT}-01-more`],
    ['one of a later version that runs on', `01-${TRACE}-${PARENT}-01x`],
    ['the version that is none', `ff-${TRACE}-${PARENT}-01`],
    ['a trace of zeros', `00-${'0'.repeat(32)}-${PARENT}-01`],
    ['a parent of zeros', `00-${TRACE}-${'0'.repeat(16)}-01`],
    ['upper case', `00-${TRACE.toUpperCase()}-${PARENT}-01`],
    ['a trace too short', `00-${TRACE.slice(1)}-${PARENT}-01`],
    ['no flags', `00-${TRACE}-${PARENT}`],
    ['a blank', ` 00-${TRACE}-${PARENT}-01`],
    ['a line end', `00-${TRACE}-${PARENT}-01\r\n`],
    ['a list', `00-${TRACE}-${PARENT}-01,00-${TRACE}-${PARENT}-01`],
    ['letters that are no digits', `00-${'g'.repeat(32)}-${PARENT}-01`],
    ['one without end', `01-${TRACE}-${PARENT}-01-${'x'.repeat(30_000)}`],
  ])('%s is no parent', (_sentence, text) => {
    expect(parseTraceparent(text)).toBeUndefined()
  })

  test('whatever comes, what is read is two identifiers', () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.string(), fc.stringMatching(/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.*$/)),
        (text) => {
          const parent = parseTraceparent(text)
          if (parent === undefined) return
          expect(parent.traceId).toMatch(/^(?!0{32})[0-9a-f]{32}$/)
          expect(parent.parentId).toMatch(/^(?!0{16})[0-9a-f]{16}$/)
          expect(text.slice(3, 52)).toBe(`${parent.traceId}-${parent.parentId}`)
        },
      ),
    )
  })
})

test('identifiers of one’s own are new each time', () => {
  expect(newTraceId()).toMatch(/^[0-9a-f]{32}$/)
  expect(newSpanId()).toMatch(/^[0-9a-f]{16}$/)
  expect(new Set(Array.from({ length: 1000 }, newSpanId)).size).toBe(1000)
})
