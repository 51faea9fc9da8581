/** What is kept of output, and that nothing is lost in silence. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  createKeptOutput,
  startCursor,
  type KeptOutput,
  type OutputBudget,
} from '../../../provider/worker/kept-output.ts'

const MB = 1024 * 1024
const budgetOf = (limit: number): OutputBudget => ({ used: 0, limit })

function readAll(output: KeptOutput, cursor = startCursor()) {
  const got = { stdout: '', stderr: '', lost: 0 }
  for (let piece = output.read(cursor); piece !== undefined; piece = output.read(cursor)) {
    got.lost += piece.lostBytes
    got[piece.stream] += piece.bytes.toString('latin1')
  }
  return got
}

describe('kept output', () => {
  it('is read in the order it came, from the beginning and then on', () => {
    const output = createKeptOutput(MB, budgetOf(MB))
    output.push('stdout', Buffer.from('a'))
    output.push('stderr', Buffer.from('b'))
    output.push('stdout', Buffer.from('c'))
    const cursor = startCursor()
    const order: string[] = []
    for (let piece = output.read(cursor); piece !== undefined; piece = output.read(cursor))
      order.push(piece.bytes.toString())
    expect(order).toEqual(['a', 'b', 'c'])
    output.push('stderr', Buffer.from('d'))
    expect(readAll(output, cursor)).toEqual({ stdout: '', stderr: 'd', lost: 0 })
  })

  it('is the end of each stream, and every missing byte is counted', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(
            fc.constantFrom('stdout' as const, 'stderr' as const),
            fc.uint8Array({ minLength: 1, maxLength: 50 }),
          ),
        ),
        (pieces) => {
          const output = createKeptOutput(100, budgetOf(MB))
          const all = { stdout: '', stderr: '' }
          for (const [stream, bytes] of pieces) {
            output.push(stream, Buffer.from(bytes))
            all[stream] += Buffer.from(bytes).toString('latin1')
          }
          const cursor = startCursor()
          const got = readAll(output, cursor)
          for (const stream of ['stdout', 'stderr'] as const) {
            expect(got[stream].length).toBeLessThanOrEqual(100)
            expect(all[stream].endsWith(got[stream])).toBe(true)
            expect(output.written(stream)).toBe(all[stream].length)
          }
          const tail = all.stdout.length + all.stderr.length - cursor.offsets.stdout - cursor.offsets.stderr
          expect(got.lost + tail + got.stdout.length + got.stderr.length).toBe(all.stdout.length + all.stderr.length)
        },
      ),
    )
  })

  it('of a stream that floods does not push out the other', () => {
    const output = createKeptOutput(1000, budgetOf(MB))
    output.push('stderr', Buffer.from('important'))
    for (let index = 0; index < 1000; index++) output.push('stdout', Buffer.alloc(100))
    expect(readAll(output).stderr).toBe('important')
  })

  it('costs no more than the budget that all share, single bytes included', () => {
    const budget = budgetOf(MB)
    const outputs = Array.from({ length: 10 }, () => createKeptOutput(MB, budget))
    for (let round = 0; round < 2_000; round++)
      for (const output of outputs) output.push('stdout', Buffer.alloc(round % 2 === 0 ? 1 : 3_000))
    expect(budget.used).toBeLessThanOrEqual(MB)
    for (const output of outputs) output.forget()
    expect(budget.used).toBe(0)
  })
})
