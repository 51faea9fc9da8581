/** Runs the conformance suite as vitest tests. */
import { AssertionError } from 'node:assert'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test, type TestContext } from 'vitest'
import {
  type Bench,
  conformanceAreas,
  type ConformanceCheck,
  type ConformanceSubject,
  openBench,
} from '../../../provider/conformance/index.ts'
import { type BackendConfig, createSandboxProvider } from '../../../provider/index.ts'
import type { AbandonedHost } from './abandon.ts'

/** One of our backends. */
export interface OwnSubject {
  readonly config: BackendConfig
  /** Inside. */
  readonly node: readonly string[]
  readonly probe?: string | undefined
  readonly leftovers?: (sandboxId: string) => Promise<readonly string[]>
  /** For sandboxes elsewhere. See {@link ConformanceSubject}. */
  readonly gatewayAddress?: string
  readonly transparentEgress?: boolean
  /** Runs after all checks. */
  readonly done?: () => Promise<void>
}

const CHECK_TIMEOUT_MS = 180_000

/** What is left out, and how long one check may take. */
export interface RunOptions {
  /** Of these checks the very opposite is tested: that they see what the backend leaves open, though they would be skipped. */
  readonly known?: readonly string[]
  /** By name; all by default. */
  readonly chosen?: readonly string[] | undefined
  readonly checkTimeoutMs?: number
}

/** Declares a test for each check. `prepare` runs before all of them; what it returns as `done` runs after. */
export function runConformance(
  prepare: () => OwnSubject | Promise<OwnSubject>,
  { known = [], chosen, checkTimeoutMs = CHECK_TIMEOUT_MS }: RunOptions = {},
): void {
  let bench: Bench
  let finish: () => Promise<void>

  beforeAll(async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spc-'))
    const runtimeRoot = path.join(folder, 'r')
    const { config, node, probe, leftovers, gatewayAddress, transparentEgress = false, done } = await prepare()
    const subject: ConformanceSubject = {
      createProvider: (options) => createSandboxProvider({ ...options, backend: config, runtimeRoot }),
      runtimeRoot,
      node,
      ...(probe !== undefined && { probe }),
      ...(gatewayAddress !== undefined && { gatewayAddress }),
      transparentEgress,
      leftovers: async (id) => [
        ...(fs.existsSync(path.join(runtimeRoot, id)) ? [`runtime folder of ${id}`] : []),
        ...processesOf(id),
        ...((await leftovers?.(id)) ?? []),
      ],
      abandon: () => abandonSandbox({ config, runtimeRoot, gatewayAddress, transparentEgress }),
    }
    bench = await openBench(subject)
    finish = async () => {
      await bench.close()
      const left = fs.readdirSync(runtimeRoot).filter((name) => name.startsWith('sbx_'))
      await done?.()
      fs.rmSync(folder, { recursive: true, force: true })
      expect(left).toEqual([])
    }
  }, checkTimeoutMs)
  afterAll(() => finish(), checkTimeoutMs)

  describe.each(areasWith(chosen))('%s', (_name, checks) => {
    for (const check of checks) {
      if (chosen?.includes(check.name) === false) continue
      if (known.includes(check.name)) {
        test(`it is seen that it does not hold: ${check.name}`, { timeout: checkTimeoutMs }, async () => {
          await expect(check.run(bench)).rejects.toThrow(AssertionError)
        })
        continue
      }
      test(check.name, { timeout: checkTimeoutMs }, async (context: TestContext) => {
        const reason = check.skip?.(bench)
        context.skip(reason !== undefined, reason)
        await check.run(bench)
      })
    }
  })
}

/** Name and checks of each area that has some to run. @throws Error for a name that no check has */
function areasWith(chosen: readonly string[] | undefined): (readonly [string, readonly ConformanceCheck[]])[] {
  const names = conformanceAreas.flatMap(({ checks }) => checks.map(({ name }) => name))
  const unknown = chosen?.find((name) => !names.includes(name))
  if (unknown !== undefined) throw new Error(`there is no check \`${unknown}\``)
  return conformanceAreas
    .filter(({ checks }) => chosen === undefined || checks.some(({ name }) => chosen.includes(name)))
    .map((area) => [area.name, area.checks])
}

/** Processes of the host that name a sandbox. */
function processesOf(id: string): readonly string[] {
  return fs
    .readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && name !== String(process.pid))
    .flatMap((pid) => {
      try {
        const line = fs.readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')
        return line.includes(id) ? [`process ${pid}: ${line}`] : []
      } catch {
        return []
      }
    })
}

async function abandonSandbox(host: AbandonedHost): Promise<string> {
  const child = spawn(process.execPath, [path.join(import.meta.dirname, 'abandon.ts'), JSON.stringify(host)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const failed = exited.then(([code]) => Promise.reject(new Error(`the other host ended with ${String(code)}`)))
  const [line] = (await Promise.race([once(child.stdout, 'data'), failed])) as [Buffer]
  failed.catch(() => undefined)
  child.kill('SIGKILL')
  await exited
  return line.toString().trim()
}
