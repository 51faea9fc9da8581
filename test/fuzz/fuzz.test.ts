/** Every input that is kept holds what its target must hold; and the fuzzer finds what was planted, small and soon, with coverage sooner than without. */
import { afterAll, describe, expect, test } from 'vitest'
import { corpusLine, readCorpus } from './corpus.ts'
import { openCoverage } from './coverage.ts'
import { failureOf, fuzz } from './fuzzer.ts'
import { mutate } from './mutate.ts'
import { PLANTED, plantedIn } from './planted.ts'
import { createRandom, pieces } from './random.ts'
import { hold, type Target } from './target.ts'
import { TARGETS } from './targets/index.ts'

describe.each(Object.keys(TARGETS))('%s', (name) => {
  test('holds for its seeds and for every input that is kept', { timeout: 300_000 }, async () => {
    const target = await TARGETS[name]!()
    try {
      const kept = readCorpus(name)
      expect(kept.length).toBeGreaterThan(0)
      for (const input of [...target.seeds, ...kept])
        expect(await failureOf(target, input), corpusLine(input)).toBeUndefined()
    } finally {
      await target.close?.()
    }
  })
})

/** Found by coverage alone. */
const DEEP = 'a chain of conditions'

describe('the fuzzer', () => {
  const coverage = openCoverage((url) => url.includes('/test/fuzz/planted'))
  afterAll(() => coverage.reset())

  /** After how many inputs a fault that was planted is found, at most `limit`. */
  const findAfter = async (target: Target, seed: number, isGuided: boolean, limit: number): Promise<number> => {
    coverage.reset()
    const { findings } = await fuzz({
      target,
      random: createRandom(seed),
      coverage: isGuided ? coverage : undefined,
      goesOn: (executed) => executed < limit,
      maxFindings: 1,
    })
    return findings[0]?.executed ?? Infinity
  }

  test.each(PLANTED.filter((name) => name !== DEEP))(
    'finds what was planted in %s',
    { timeout: 300_000 },
    async (name) => {
      expect(await findAfter(plantedIn(name), 1, true, 300_000)).toBeLessThan(300_000)
    },
  )

  test(
    'with coverage finds what lies behind several conditions, and without does not as soon',
    { timeout: 300_000 },
    async () => {
      const limit = 60_000
      const deep = plantedIn(DEEP)
      const [guided, blind] = [await findAfter(deep, 1, true, limit), await findAfter(deep, 1, false, limit)]
      expect(guided).toBeLessThan(blind)
    },
  )

  test('makes a finding small, and says what it was', async () => {
    const { findings } = await fuzz({
      target: targetOf((input) => hold(!input.includes('XY'), 'no XY')),
      random: createRandom(3),
      corpus: [Buffer.from(`${'a'.repeat(400)}XY${'b'.repeat(300)}`)],
      goesOn: () => false,
    })
    expect(findings.map(({ what, input }) => [what, String(input)])).toEqual([['no XY', 'XY']])
  })

  test('finds what takes too long, and what throws', async () => {
    const slow = targetOf((input) => {
      const until = performance.now() + (input.length > 10 ? 80 : 0)
      while (performance.now() < until);
    })
    expect(await failureOf({ ...slow, maxCpuMs: 10 }, Buffer.alloc(11))).toMatchObject({ what: 'takes too long' })
    expect(await failureOf(slow, Buffer.alloc(10))).toBeUndefined()
    const broken = targetOf(() => void Buffer.alloc(2).readUInt32BE(0))
    expect((await failureOf(broken, Buffer.alloc(1)))?.what).toMatch(/^throws RangeError/)
  })

  test('is the same again with the same seed', () => {
    const run = (seed: number) => {
      const random = createRandom(seed)
      let input: Buffer = Buffer.from('CONNECT a.example:443 HTTP/1.1')
      for (let step = 0; step < 500; step += 1)
        input = mutate(input, random, { others: [Buffer.from('other')], words: ['word'], maxBytes: 4096 })
      return input.toString('base64')
    }
    expect(run(5)).toBe(run(5))
    expect(run(5)).not.toBe(run(6))
  })

  test('splits an input into pieces that are the input', () => {
    for (const text of ['', 'a', 'abc'.repeat(50)]) expect(String(Buffer.concat(pieces(Buffer.from(text))))).toBe(text)
  })
})

function targetOf(run: Target['run']): Target {
  return { name: 'planted', maxBytes: 1024, maxCpuMs: 10_000, seeds: [], words: [], run }
}
