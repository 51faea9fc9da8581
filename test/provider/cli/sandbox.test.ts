/** `sallyport sandbox` sees what other processes made, and takes away what a killed one leaves. */
import { readdirSync } from 'node:fs'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { main } from '../../../provider/cli/main.ts'
import { startBinary } from '../../proxy/cli/run-cli.ts'
import { describeNeeding } from '../needs.ts'
import { openSurrounds, type Surrounds } from './origin.ts'

// Each test starts whole processes, on a machine that may be busy.
vi.setConfig({ testTimeout: 120_000 })

let around: Surrounds
beforeAll(async () => {
  around = await openSurrounds()
})
afterAll(() => around.close())

async function sandbox(...args: string[]) {
  return inThisProcess(['sandbox', ...args])
}

async function inThisProcess(args: readonly string[]) {
  for (const [name, value] of Object.entries(around.environment)) vi.stubEnv(name, value)
  const stdout: string[] = []
  const code = await main(args, {
    out: (text) => void stdout.push(`${text}\n`),
    err: () => undefined,
    environment: process.env,
    readInput: () => Promise.resolve(''),
    signal: new AbortController().signal,
  })
  vi.unstubAllEnvs()
  return { code, stdout: stdout.join('') }
}

describeNeeding(['bubblewrap'], 'sallyport sandbox', () => {
  test('lists a run, leaves it alone while its process lives, and reaps it afterwards', async () => {
    const running = startBinary(['run', '--', 'sh', '-c', 'echo ready; sleep 600'], {
      cwd: around.folder,
      environment: around.environment,
    })
    await running.until('stdout', /ready/)
    const listed = JSON.parse((await sandbox('list', '--json')).stdout) as {
      id: string
      backend: string
      labels: object
    }[]
    expect(listed).toMatchObject([{ backend: 'process', labels: { command: 'run' } }])
    const [{ id } = { id: '' }] = listed
    expect((await sandbox('list')).stdout).toContain(`${id}  process`)
    expect((await sandbox('reap')).stdout).toBe('There was nothing to take away.\n')

    running.kill('SIGKILL')
    await running.ended
    expect((await sandbox('reap', '--older-than', '1ms')).stdout).toBe(`${id}\n`)
    expect((await sandbox('list')).stdout).toBe('There are no sandboxes.\n')
    expect(readdirSync(around.runtimeRoot)).toEqual([])
  })

  test('doctor says what each backend enforces', async () => {
    const { stdout } = await inThisProcess(['doctor', '--json'])
    const { findings } = JSON.parse(stdout) as { findings: { name: string; status: string; detail: string }[] }
    const find = (name: string) => findings.find((finding) => finding.name === name)
    expect(find('sandboxes: process')?.detail).toContain('stopped by the kernel')
    expect(find('sandboxes: process')?.status).toBe('ok')
    expect(find('sandboxes: passthrough')).toMatchObject({ status: 'warn' })
    expect(find('sandboxes: docker')).toBeDefined()
    expect(find('sandboxes: runsc')).toBeDefined()
  })
})

test('a time that is none is wrong usage', async () => {
  expect(await sandbox('reap', '--older-than', 'soon')).toMatchObject({ code: 3 })
})
