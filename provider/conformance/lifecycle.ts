/** The life of a sandbox: made, listed, reached from elsewhere, limited, ended. */
import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { SandboxError } from '../sandbox-error.ts'
import type { Bench } from './bench.ts'
import type { ConformanceArea } from './check.ts'
import { onNode } from './clients.ts'

/** Fails unless a promise rejects with a SandboxError of that code. */
export async function rejectsWith(promise: Promise<unknown>, code: SandboxError['code']): Promise<SandboxError> {
  const thrown: unknown = await promise.then(
    () => assert.fail(`nothing was thrown; ${code} was expected`),
    (error: unknown) => error,
  )
  if (!(thrown instanceof SandboxError)) throw thrown
  assert.equal(thrown.code, code)
  return thrown
}

/** Waits until `isSo`. @throws AssertionError after `withinMs` */
export async function eventually(
  isSo: () => boolean | Promise<boolean>,
  withinMs: number,
  what: string,
): Promise<void> {
  const deadline = Date.now() + withinMs
  while (!(await isSo())) {
    if (Date.now() > deadline) assert.fail(`${what}: not within ${withinMs} ms`)
    await delay(50)
  }
}

/** Fails unless nothing is left of a sandbox, neither for the provider nor for whoever looks at the platform. */
export async function nothingLeft({ provider, subject }: Bench, id: string): Promise<void> {
  assert.deepEqual(
    (await provider.list()).filter((each) => each.id === id),
    [],
  )
  assert.deepEqual((await subject.leftovers?.(id)) ?? [], [])
}

/** The checks. */
export const lifecycle: ConformanceArea = {
  name: 'lifecycle',
  checks: [
    {
      name: 'a new sandbox is ready, has an id and a root of its own, and is listed with its labels',
      run: async ({ provider, sandbox }) => {
        const made = await sandbox()
        assert.match(made.id, /^sbx_[a-z0-9]+$/)
        assert.equal(made.status, 'ready')
        assert.equal(made.environment, provider.environment)
        assert.equal((await made.exec('pwd')).stdout.trim(), made.rootDir)
        assert.ok((await provider.list()).some(({ id }) => id === made.id))
      },
    },
    {
      name: 'destroying is one thing however often it is asked for, and leaves nothing',
      run: async (bench) => {
        const sandbox = await bench.provider.create({ labels: { kind: 'short' } })
        assert.deepEqual((await bench.provider.list()).find(({ id }) => id === sandbox.id)?.labels, { kind: 'short' })
        await sandbox.exec('sleep 300 & echo left-behind > file')
        await Promise.all([sandbox.destroy(), sandbox.destroy()])
        await sandbox.destroy()
        assert.equal(sandbox.status, 'destroyed')
        await nothingLeft(bench, sandbox.id)
        await rejectsWith(sandbox.exec('true'), 'SALLYPORT_SANDBOX_DESTROYED')
        await rejectsWith(sandbox.readFile('file'), 'SALLYPORT_SANDBOX_DESTROYED')
      },
    },
    {
      name: 'a command that runs while the sandbox is destroyed fails with an unknown outcome',
      run: async ({ provider }) => {
        const sandbox = await provider.create()
        const running = rejectsWith(sandbox.exec('sleep 300'), 'SALLYPORT_SANDBOX_DESTROYED')
        await delay(200)
        await sandbox.destroy()
        assert.equal((await running).outcome, 'unknown')
        assert.equal(sandbox.status, 'destroyed')
      },
    },
    {
      name: 'another provider attaches to it, runs commands in it, and may destroy it',
      skip: ({ provider }) => (provider.capabilities.attach ? undefined : 'the backend can not attach'),
      run: async (bench) => {
        const sandbox = await bench.provider.create()
        await sandbox.writeFile('note', 'here')
        const other = bench.anotherProvider()
        const attached = await other.attach(sandbox.id)
        assert.equal(attached.rootDir, sandbox.rootDir)
        assert.equal(Buffer.from(await attached.readFile('note')).toString(), 'here')
        await attached.destroy()
        await eventually(() => sandbox.status === 'destroyed', 15_000, 'its maker notices')
        await sandbox.destroy()
        await nothingLeft(bench, sandbox.id)
      },
    },
    {
      name: 'what is not there can not be attached to',
      run: async ({ provider }) => {
        await rejectsWith(provider.attach('sbx_aaaaaaaaaaaaaaaa'), 'SALLYPORT_SANDBOX_NOT_FOUND')
      },
    },
    {
      name: 'it ends by itself at its time, and leaves nothing',
      skip: ({ provider }) => (provider.capabilities.timeToLive ? undefined : 'the backend keeps no time'),
      run: async (bench) => {
        const sandbox = await bench.provider.create({ timeoutMs: 8_000 })
        assert.equal((await sandbox.exec('true')).exitCode, 0)
        await eventually(() => sandbox.status === 'destroyed', 40_000, 'it ends')
        await sandbox.destroy()
        await nothingLeft(bench, sandbox.id)
      },
    },
    {
      name: 'a limit that the backend does not keep is refused',
      skip: ({ provider: { capabilities } }) =>
        capabilities.memoryLimit && capabilities.processLimit ? 'it keeps both' : undefined,
      run: async ({ provider }) => {
        const limit = provider.capabilities.memoryLimit ? { maxProcesses: 50 } : { memoryLimitMb: 256 }
        await rejectsWith(provider.create(limit), 'SALLYPORT_SANDBOX_NOT_SUPPORTED')
      },
    },
    {
      name: 'memory beyond the limit is not to be had, and the sandbox lives on where it says so',
      skip: ({ provider }) => (provider.capabilities.memoryLimit ? undefined : 'the backend limits no memory'),
      run: async ({ provider, subject, withSandbox }) => {
        const greedy = 'const kept = []; for (;;) kept.push(Buffer.alloc(16 * 1024 * 1024, 1)); '
        await withSandbox({ memoryLimitMb: 256 }, async (sandbox) => {
          const running = sandbox.exec(...onNode(subject, ['-e', greedy]), { timeout: 60_000 })
          if (provider.capabilities.memoryLimit === 'sandbox') {
            await assert.rejects(running, { code: 'SALLYPORT_SANDBOX_CONNECTION_LOST', outcome: 'unknown' })
            await eventually(() => sandbox.status === 'destroyed', 30_000, 'its end is noticed')
            return
          }
          assert.notEqual((await running).exitCode, 0)
          assert.equal((await sandbox.exec('echo alive')).stdout, 'alive\n')
        })
      },
    },
    {
      name: 'processes beyond the limit are not to be had, and the sandbox lives on',
      skip: ({ provider }) => (provider.capabilities.processLimit ? undefined : 'the backend limits no processes'),
      run: async ({ withSandbox }) => {
        await withSandbox({ maxProcesses: 60 }, async (sandbox) => {
          const { stdout } = await sandbox.exec(
            'i=0; while [ $i -lt 300 ]; do (sleep 20 & echo started) || exit 1; i=$((i+1)); done',
            undefined,
            { timeout: 60_000 },
          )
          assert.ok(stdout.split('\n').length < 300, 'all processes were started')
          await eventually(
            async () => (await sandbox.exec('echo alive').catch(() => undefined))?.stdout === 'alive\n',
            40_000,
            'it answers again',
          )
        })
      },
    },
    {
      name: 'giving up while it is made leaves nothing',
      run: async ({ provider }) => {
        const before = (await provider.list()).map(({ id }) => id)
        const reason = new Error('enough')
        for (const afterMs of [0, 10, 20, 30, 40]) {
          const controller = new AbortController()
          const creating = provider.create({ signal: controller.signal })
          await delay(afterMs)
          controller.abort(reason)
          await assert.rejects(creating, reason)
        }
        assert.deepEqual(
          (await provider.list()).map(({ id }) => id),
          before,
        )
      },
    },
  ],
}
