/** Fuzzes one target in a thread of its own, with a heap of its own. */
import { parentPort, workerData } from 'node:worker_threads'
import { readCorpus, writeCorpus } from './corpus.ts'
import { openCoverage } from './coverage.ts'
import { failureOf, fuzz } from './fuzzer.ts'
import { createRandom } from './random.ts'
import { SharedInput } from './shared-input.ts'
import type { FromThread, ToThread } from './run.ts'
import { TARGETS } from './targets/index.ts'

/** So many inputs of a corpus are kept, none longer than this. */
const MOST_KEPT = 60
const LONGEST_KEPT = 2048

const { name, seed, ms, isBlind, keeps, memory } = workerData as ToThread
const shared = new SharedInput(memory)
const coverage = openCoverage((url) => /\/(?:policies|proxy)\//.test(url) && !url.includes('/node_modules/'))
const target = await TARGETS[name]!()
// What it took to get ready is nothing new.
coverage.isNew(true)
const deadlineMs = performance.now() + ms
const result = await fuzz({
  target,
  random: createRandom(seed),
  coverage: isBlind ? undefined : coverage,
  corpus: readCorpus(name),
  goesOn: () => performance.now() < deadlineMs,
  onInput: (input) => shared.set(input),
})
const reached = coverage.size()
if (keeps) {
  coverage.reset()
  // Short ones first: what a long one reaches beside them is what it is kept for.
  const fewest: Buffer[] = []
  for (const input of target.seeds) await failureOf(target, input)
  coverage.isNew(true)
  for (const input of result.kept.toSorted((one, other) => one.length - other.length)) {
    if (input.length > LONGEST_KEPT || fewest.length >= MOST_KEPT) break
    await failureOf(target, input)
    if (coverage.isNew(true)) fewest.push(input)
  }
  writeCorpus(name, fewest)
}
await target.close?.()
const { executed, kept, findings } = result
parentPort?.postMessage({ executed, kept: kept.length, reached, findings } satisfies FromThread)
