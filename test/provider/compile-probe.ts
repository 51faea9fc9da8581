/** The hostile program, compiled. Without a compiler nothing is proved: skipped with the reason here, a failure in CI. */
import { spawnSync } from 'node:child_process'
import path from 'node:path'

const SOURCE = path.join(import.meta.dirname, 'probe.c')

/** Compiles it into `folder`; for every processor and libc, with warnings as errors. `-static` makes it run in an image that has no libc. */
export function compileProbe(folder: string, flags: readonly string[] = []): string {
  const file = path.join(folder, 'probe')
  const { status, stderr, error } = spawnSync(
    'gcc',
    ['-O1', '-Wall', '-Wextra', '-Werror', ...flags, '-o', file, SOURCE],
    {
      encoding: 'utf8',
    },
  )
  if (error !== undefined) throw error
  if (status !== 0) throw new Error(`gcc: ${stderr}`)
  return file
}

/** What it said of one attempt. */
export interface Attempt {
  readonly open: boolean
  readonly why: string
}

/** By attempt, as it was given. */
export function parseAttempts(printed: string): ReadonlyMap<string, Attempt> {
  const lines = printed.split('\n').filter((line) => line !== '')
  return new Map(
    lines.map((line) => {
      const [verdict, attempt, why = ''] = line.split('\t')
      if ((verdict !== 'open' && verdict !== 'shut') || attempt === undefined)
        throw new Error(`the probe said: ${line}`)
      return [attempt, { open: verdict === 'open', why }]
    }),
  )
}
