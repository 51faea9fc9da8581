/**
 * Fuzzes what reads the bytes of others. `npm run fuzz [-- --seconds 120] [--seed N] [--target name] [--blind] [--keep]`
 *
 * The time is for all targets together. Ends with 1 when something broke; the input is printed as a line for `test/fuzz/corpus/`, where it becomes a
 * regression test. `--keep` makes the corpus anew from what was reached. `--blind` leaves coverage out, to compare.
 */
import { parseArgs } from 'node:util'
import { Worker } from 'node:worker_threads'
import { corpusLine } from './corpus.ts'
import type { Finding } from './fuzzer.ts'
import { SharedInput } from './shared-input.ts'
import { TARGETS } from './targets/index.ts'

/** What a thread is told. */
export interface ToThread {
  readonly name: string
  readonly seed: number
  readonly ms: number
  readonly isBlind: boolean
  readonly keeps: boolean
  readonly memory: SharedArrayBuffer
}

/** What it tells. */
export interface FromThread {
  readonly executed: number
  readonly kept: number
  /** Bytes of the product's source that ran. */
  readonly reached: number
  readonly findings: readonly Finding[]
}

/** An input that takes so long hangs, however busy the machine is. */
const HANG_MS = 30_000
const LOOK_MS = 1000
/** What any input of any target may make a thread hold. */
const HEAP_MIB = 512

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '120' },
    seed: { type: 'string' },
    target: { type: 'string', multiple: true },
    blind: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
  },
})
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 32))
const names = values.target ?? Object.keys(TARGETS)
const unknown = names.find((name) => TARGETS[name] === undefined)
if (unknown !== undefined || !Number.isSafeInteger(seed) || !(Number(values.seconds) > 0)) {
  console.error(
    `usage: npm run fuzz -- [--seconds N] [--seed N] [--target ${Object.keys(TARGETS).join('|')}] [--blind] [--keep]`,
  )
  process.exit(2)
}
console.log(
  `fuzz: seed ${seed}, ${values.seconds} s for ${names.length} targets; the same again: npm run fuzz -- --seed ${seed} --seconds ${values.seconds}`,
)
let isBroken = false
for (const name of names) {
  const found = await runTarget({
    name,
    seed,
    ms: (Number(values.seconds) * 1000) / names.length,
    isBlind: values.blind,
    keeps: values.keep,
  })
  console.log(
    `${name}: ${found.executed} inputs, ${found.kept} of them reached something new; ${found.reached} bytes of source ran`,
  )
  for (const { what, details, input, executed } of found.findings) {
    isBroken = true
    console.log(
      `${name}: BROKEN after ${executed}: ${what}\n  ${details.replaceAll('\n', '\n  ')}\n  ${corpusLine(Buffer.from(input))}`,
    )
  }
}
process.exit(isBroken ? 1 : 0)

async function runTarget(told: Omit<ToThread, 'memory'>): Promise<FromThread> {
  const shared = new SharedInput()
  const worker = new Worker(new URL('./fuzz-thread.ts', import.meta.url), {
    workerData: { ...told, memory: shared.memory } satisfies ToThread,
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
  })
  const broken = (what: string, details = ''): FromThread => ({
    executed: shared.count,
    kept: 0,
    reached: 0,
    findings: [{ what, details, input: shared.get(), executed: shared.count }],
  })
  return new Promise((resolve) => {
    let last = -1
    let sinceMs = performance.now()
    const watch = setInterval(() => {
      if (shared.count !== last) sinceMs = performance.now()
      last = shared.count
      if (performance.now() - sinceMs > HANG_MS) finish(broken('hangs'))
    }, LOOK_MS)
    let isOver = false
    const finish = (found: FromThread): void => {
      if (isOver) return
      isOver = true
      clearInterval(watch)
      void worker.terminate().then(() => resolve(found))
    }
    worker.once('message', (found: FromThread) => finish(found))
    worker.once('error', (error: unknown) => finish(broken('ends the thread', String(error))))
    worker.once('exit', (code) => finish(broken(`ends the thread with ${code}`)))
  })
}
