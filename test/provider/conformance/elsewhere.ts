/** Runs a test file in a process of its own, where this one can't be: as another user, or in another network namespace. */
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

/** What became of the tests of the file. */
export interface ElsewhereReport {
  readonly passed: readonly string[]
  readonly skipped: readonly string[]
  /** With what was said of each. */
  readonly failed: readonly string[]
}

interface VitestReport {
  readonly testResults: readonly {
    readonly message: string
    readonly assertionResults: readonly {
      readonly fullName: string
      readonly status: string
      readonly failureMessages: readonly string[]
    }[]
  }[]
}

const ROOT = path.resolve(import.meta.dirname, '../../..')

/**
 * `file` is `*.elsewhere.ts`, beside this one. `through` is the command line that leads there. `folder` may be written to from there.
 * @throws Error when the tests could not be run at all
 */
export async function runElsewhere(
  file: string,
  through: readonly string[],
  { folder, env = {} }: { readonly folder: string; readonly env?: Readonly<Record<string, string>> },
): Promise<ElsewhereReport> {
  const outputFile = path.join(folder, 'results.json')
  const vitest = path.join(ROOT, 'node_modules/vitest/vitest.mjs')
  const config = path.join(import.meta.dirname, 'elsewhere.config.ts')
  const args = ['run', '--root', ROOT, '--config', config, '--configLoader', 'runner', file]
  const [program, ...rest] = [
    ...through,
    process.execPath,
    vitest,
    ...args,
    '--reporter=json',
    `--outputFile=${outputFile}`,
  ]
  const said = await new Promise<string>((resolve) => {
    execFile(
      program,
      rest,
      {
        cwd: ROOT,
        env: { PATH: process.env['PATH'], CI: process.env['CI'], ...env, ELSEWHERE_CACHE: folder },
        maxBuffer: 2 ** 26,
      },
      (_error, stdout, stderr) => resolve(stdout + stderr),
    )
  })
  if (!fs.existsSync(outputFile)) throw new Error(`the tests could not be run: ${said.slice(-4_000)}`)
  const { testResults } = JSON.parse(fs.readFileSync(outputFile, 'utf8')) as VitestReport
  const all = testResults.flatMap(({ assertionResults }) => assertionResults)
  const named = (status: string): string[] =>
    all.filter((one) => one.status === status).map(({ fullName }) => fullName.trim())
  return {
    passed: named('passed'),
    skipped: [...named('skipped'), ...named('pending')],
    failed: [
      ...testResults.map(({ message }) => message).filter((message) => message !== ''),
      ...all
        .filter(({ status }) => status === 'failed')
        .map(({ fullName, failureMessages }) => `${fullName.trim()}: ${failureMessages.join('\n')}`),
    ],
  }
}
