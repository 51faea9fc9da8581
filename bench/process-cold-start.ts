/**
 * From nothing to the first command's result: the process backend beside bare `bwrap … node -e 0`, by turns in one run.
 *
 * Wall time, and processor time of everything including this program, as medians, minima and ratios; the target is 1.5. Processor time needs root and
 * the controller `cpuacct` of control groups, version 1. `node bench/process-cold-start.ts [ROUNDS]`
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, realpathSync, rmdirSync, writeFileSync } from 'node:fs'
import fs from 'node:fs/promises'
import { createProcessBackend } from '../provider/backends/process.ts'
import { createWorkerClient } from '../provider/worker-client.ts'

const rounds = Number(process.argv[2] ?? 15)
const TOKEN = 'x'.repeat(43)
const NODE = realpathSync(process.execPath)

const BARE = [
  ...[
    '--unshare-all',
    '--die-with-parent',
    '--new-session',
    '--cap-drop',
    'ALL',
    '--clearenv',
    '--setenv',
    'PATH',
    '/usr/bin:/bin',
    '--ro-bind',
    '/usr',
    '/usr',
  ],
  ...[
    '--symlink',
    'usr/bin',
    '/bin',
    '--symlink',
    'usr/lib',
    '/lib',
    '--symlink',
    'usr/lib64',
    '/lib64',
    '--proc',
    '/proc',
    '--dev',
    '/dev',
    '--tmpfs',
    '/tmp',
  ],
  ...[
    '--dir',
    '/work',
    '--chdir',
    '/work',
    '--ro-bind',
    NODE,
    '/opt/node',
    '--uid',
    '10001',
    '--gid',
    '10001',
    '--',
    '/opt/node',
    '-e',
    '0',
  ],
]

const GROUP = `/sys/fs/cgroup/cpuacct/sallyport-bench-${process.pid}`
try {
  mkdirSync(GROUP)
  writeFileSync(`${GROUP}/cgroup.procs`, String(process.pid))
} catch {
  console.log('no processor time: there is no control group that counts it')
}

/** Processor time of this process and of everything that it started, in milliseconds. */
function processorMs(): number {
  return existsSync(GROUP) ? Number(readFileSync(`${GROUP}/cpuacct.usage`, 'latin1')) / 1e6 : Number.NaN
}

async function bare(): Promise<number> {
  const startedMs = performance.now()
  await new Promise<void>((resolve, reject) => {
    spawn('bwrap', BARE, { stdio: 'ignore' }).once('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`bwrap ended with ${String(code)}`)),
    )
  })
  return performance.now() - startedMs
}

const runtimeRoot = await fs.mkdtemp('/tmp/sp-')
const backend = createProcessBackend({ runtimeRoot })
await backend.check()
let count = 0

async function ours(): Promise<number> {
  const id = `sbx_${count++}`
  const runtimeFolder = `${runtimeRoot}/${id}`
  const startedMs = performance.now()
  await fs.mkdir(runtimeFolder)
  const sandbox = await backend.start({
    id,
    runtimeFolder,
    workerToken: TOKEN,
    env: {},
    labels: {},
    undo: () => undefined,
  })
  const { exitCode } = await createWorkerClient({ connect: sandbox.connect, token: TOKEN }).execute({
    command: 'true',
    args: [],
  })
  const elapsedMs = performance.now() - startedMs
  if (exitCode !== 0) throw new Error(`the command ended with ${exitCode}`)
  await sandbox.stop()
  return elapsedMs
}

const results: Record<'bare' | 'ours', { wall: number[]; processor: number[] }> = {
  bare: { wall: [], processor: [] },
  ours: { wall: [], processor: [] },
}
await bare()
await ours()
for (let round = 0; round < rounds; round += 1) {
  for (const [name, run] of [['bare', bare], ['ours', ours]] as const) {
    const beforeMs = processorMs()
    results[name].wall.push(await run())
    results[name].processor.push(processorMs() - beforeMs)
  } // prettier-ignore
}
await fs.rm(runtimeRoot, { recursive: true })
if (existsSync(GROUP)) {
  writeFileSync('/sys/fs/cgroup/cpuacct/cgroup.procs', String(process.pid))
  rmdirSync(GROUP)
}

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0
for (const measure of ['wall', 'processor'] as const) {
  const [one, other] = [results.bare[measure], results.ours[measure]]
  const ratio = median(other) / median(one)
  console.log(
    `${measure} time, ms: bare ${median(one).toFixed(0)} (min ${Math.min(...one).toFixed(0)}), process backend ${median(other).toFixed(0)} (min ${Math.min(...other).toFixed(0)}), ratio of medians ${ratio.toFixed(2)}, of minima ${(Math.min(...other) / Math.min(...one)).toFixed(2)}`,
  )
}
