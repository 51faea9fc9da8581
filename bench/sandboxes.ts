/**
 * `npm run bench:sandboxes -- [--rounds 9] [--mib 1024] [--only process,first,docker]`
 * What a sandbox costs, backend by backend, beside what it is made of: bare bubblewrap, `docker run` and `docker exec`. Wall time in one run, by turns, as
 * medians; the ratio is to the peer of the same kind. Root, bubblewrap, and for containers an engine of the bench's own (dockerd, busybox, runsc).
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { parseArgs, promisify } from 'node:util'
import type { BackendConfig } from '../provider/index.ts'
import { startDaemon } from '../test/provider/docker/daemon.ts'
import {
  bareBubblewrap,
  commandLine,
  ended,
  firstSandboxes,
  nodeAndBubblewrap,
  OUTPUT_MIB,
  sandboxes,
  type Subject,
  timed,
} from './sandbox-subjects.ts'
import { subjectsOfNobody } from './subjects-of-nobody.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '9' },
    mib: { type: 'string', default: '1024' },
    only: { type: 'string', default: 'process,first,srt,passthrough,docker,runsc' },
  },
})
const rounds = Number(values.rounds)
const mib = Number(values.mib)
const only = values.only.split(',')
const run = promisify(execFile)
const MIB = 1024 * 1024

const runtimeRoot = mkdtempSync('/tmp/spb-')
const usesEngine = only.some((name) => name === 'docker' || name === 'runsc')
const daemon = usesEngine
  ? await startDaemon({
      runtimes: {
        runsc: { path: '/usr/bin/runsc', runtimeArgs: ['--network=none', '--platform=ptrace', '--host-uds=open'] },
      },
      diskMb: 640 + 4 * mib,
    })
  : undefined
try {
  await measure()
} finally {
  await daemon?.close()
  rmSync(runtimeRoot, { recursive: true, force: true })
}

async function measure(): Promise<void> {
  const container = daemon && { image: 'busybox', engine: { socketPath: daemon.socketPath }, memoryFolderMb: 2 * mib, memoryLimitMb: 4 * mib } // prettier-ignore
  const ours: readonly (readonly [string, string, BackendConfig | undefined])[] = [
    ['process', 'bwrap', { tier: 'process' }],
    ['process, spare', 'bwrap', { tier: 'process' }],
    ['passthrough', 'bwrap', { tier: 'passthrough', unsafeUnenforced: true }],
    ['docker', 'docker run', container && { tier: 'container', runtime: 'docker', ...container }],
    ['runsc', 'docker run (runsc)', container && { tier: 'container', runtime: 'runsc', ...container }],
  ]
  const peers = [
    bareBubblewrap('bwrap'),
    ...(daemon !== undefined && only.includes('docker') ? [await bareDocker('docker run', [])] : []),
    ...(daemon !== undefined && only.includes('runsc')
      ? [await bareDocker('docker run (runsc)', ['--runtime=runsc'])]
      : []),
  ]
  const subjects = [...peers]
  for (const [name, peer, config] of ours)
    if (only.includes(name.split(',')[0] ?? '') && config !== undefined)
      await sandboxes({ runtimeRoot, mib }, name, peer, config, name.endsWith(', spare') ? 1 : 0).then(
        (subject) => subjects.push(subject),
        (error: unknown) => console.log(`without ${name}: ${error instanceof Error ? error.message : String(error)}`),
      )
  if (only.includes('first'))
    subjects.push(
      firstSandboxes({ runtimeRoot, mib }, 'process, first of a provider', 'bwrap', { tier: 'process' }),
      nodeAndBubblewrap('node, then bwrap'),
      commandLine('sallyport run', 'node, then bwrap'),
    )
  if (only.includes('srt')) subjects.push(...(await subjectsOfNobody(runtimeRoot, mib)))
  const figures = [
    ['cold start, ms', 'coldStart', rounds, (ms: number) => ms],
    ['exec round trip, ms', 'roundTrip', rounds * 3, (ms: number) => ms],
    ['output, MiB/s', 'output', 3, (ms: number) => OUTPUT_MIB / (ms / 1000)],
    ['file in, MiB/s', 'filesIn', 3, (ms: number) => mib / (ms / 1000)],
    ['file out, MiB/s', 'filesOut', 3, (ms: number) => mib / (ms / 1000)],
  ] as const
  console.log(['figure', ...subjects.map(({ name }) => name)].join('\t'))
  for (const [title, figure, times, unit] of figures) {
    const taken = subjects.map(() => [] as number[])
    for (let round = 0; round < times; round += 1)
      for (const [place, subject] of subjects.entries()) {
        const take = subject[figure]
        if (take !== undefined) taken[place]?.push(unit(await take()))
      }
    const medians = new Map(subjects.map(({ name }, place) => [name, median(taken[place] ?? [])]))
    const cells = subjects.map(({ name, peer }) => {
      const own = medians.get(name)
      const other = peer === undefined ? undefined : medians.get(peer)
      if (own === undefined) return '-'
      return `${own.toFixed(own < 100 ? 1 : 0)}${other === undefined ? '' : ` (${(own / other).toFixed(2)})`}`
    })
    console.log([title, ...cells].join('\t'))
  }
  for (const { close } of subjects) await close()
}

async function bareDocker(name: string, options: readonly string[]): Promise<Subject> {
  const host = ['--host', `unix://${daemon?.socketPath ?? ''}`]
  const common = [...options, '--network', 'none']
  const { stdout } = await run('docker', [...host, 'run', '--detach', '--rm', ...common, 'busybox', 'sleep', '100000'])
  const id = stdout.trim()
  return {
    name,
    coldStart: () => timed(() => run('docker', [...host, 'run', '--rm', ...common, 'busybox', 'true'])),
    roundTrip: () => timed(() => run('docker', [...host, 'exec', id, 'true'])),
    output: () =>
      timed(() => ended('docker', [...host, 'exec', id, 'head', '-c', String(OUTPUT_MIB * MIB), '/dev/zero'])),
    close: async () => {
      await run('docker', [...host, 'rm', '--force', id])
    },
  }
}

function median(all: readonly number[]): number | undefined {
  return all.toSorted((a, b) => a - b)[all.length >> 1]
}
