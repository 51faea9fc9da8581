/** The load kit's programs, built for one run: `BENCH_KIT` names its folder (default `../shared/bench`). Needs gcc. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import path from 'node:path'
import { reachable } from './bench-gateway.ts'

/** Its folder, whether it is there or not. */
export const KIT_FOLDER = path.resolve(import.meta.dirname, '..', process.env['BENCH_KIT'] ?? '../shared/bench')

/** What the load generator says of a run; latencies in microseconds. */
export interface LoadResult {
  readonly ok: number
  readonly errors: number
  readonly wall_s: number
  readonly connect_us: { readonly p50: number; readonly p99: number }
}

/** Builds the generator and the origin in `folder`. */
export function buildKit(folder: string): { readonly loadgen: string; readonly origin: string } {
  const build = (name: string): string => {
    const program = path.join(folder, name)
    execFileSync('gcc', ['-O2', '-w', '-o', program, path.join(KIT_FOLDER, `${name}.c`), '-lpthread', '-lm'])
    return program
  }
  return { loadgen: build('loadgen'), origin: build('origin') }
}

/** Starts the origin on 127.0.0.1 to 127.0.0.4: echo on `base` + 1, source on + 2, sink on + 3. */
export async function startOrigin(program: string, base: number): Promise<ChildProcess> {
  const addresses = [1, 2, 3, 4].map((last) => `127.0.0.${last}`).join()
  const child = spawn(program, ['--write', '--base', String(base), '--addrs', addresses], { stdio: 'ignore' })
  await reachable(base + 1)
  return child
}

/** Starts the generator; `result` is what it says in the end, `undefined` when it was stopped before. */
export function startLoad(
  program: string,
  args: readonly string[],
  niceness = 0,
): { readonly stop: () => void; readonly result: Promise<LoadResult | undefined> } {
  const child = spawn('nice', ['-n', String(niceness), program, ...args], { stdio: ['ignore', 'pipe', 'ignore'] })
  let said = ''
  child.stdout.on('data', (text) => (said += String(text)))
  const result = once(child, 'close').then(() => (said === '' ? undefined : (JSON.parse(said) as LoadResult)))
  return { stop: () => void child.kill(), result }
}

/** Opens tunnels through the proxy on a port of 127.0.0.1 to the echo of an origin; `more` says how many, and for how long. @throws Error when the generator says nothing */
export async function openTunnels(
  program: string,
  port: number,
  originBase: number,
  more: readonly string[],
): Promise<LoadResult> {
  const where = ['--proxy', `127.0.0.1:${port}`, '--target', `127.0.0.1:${originBase + 1}`, '--echo', '64']
  const result = await startLoad(program, ['--mode', 'connect-rate', ...where, ...more]).result
  if (result === undefined) throw new Error('the load generator said nothing')
  return result
}

/** @throws Error with one line when the kit is not there */
export function checkKit(): void {
  if (!fs.existsSync(path.join(KIT_FOLDER, 'loadgen.c')))
    throw new Error(`no load generator in ${KIT_FOLDER}; set BENCH_KIT`)
}
