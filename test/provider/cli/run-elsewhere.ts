/** The command line as another host runs it: it shares a platform with those that made sandboxes there, and nothing else. */
import { vi } from 'vitest'
import { main } from '../../../provider/cli/main.ts'

/** What it ended with, and what it printed. */
export interface Printed {
  readonly code: number
  readonly out: string
  readonly err: string
}

/** `given`: its variables, besides the path. `runtimeRoot`: of the host that it is not. */
export async function runElsewhere(
  args: readonly string[],
  given: Readonly<Record<string, string>>,
  runtimeRoot: string,
): Promise<Printed> {
  const out: string[] = []
  const err: string[] = []
  const environment = { PATH: process.env['PATH'], XDG_RUNTIME_DIR: `${runtimeRoot}-other`, ...given }
  vi.stubEnv('XDG_RUNTIME_DIR', environment.XDG_RUNTIME_DIR)
  const code = await main(args, {
    out: (text) => void out.push(text),
    err: (text) => void err.push(text),
    environment,
    readInput: () => Promise.resolve(''),
    signal: new AbortController().signal,
  })
  vi.unstubAllEnvs()
  return { code, out: out.join('\n'), err: err.join('\n') }
}
