/** What happens when a part dies: it is noticed, named, and cleared up. */
import assert from 'node:assert/strict'
import { SandboxError } from '../sandbox-error.ts'
import type { ConformanceArea } from './check.ts'
import { onNode } from './clients.ts'
import { eventually, nothingLeft } from './lifecycle.ts'

/** The checks. */
export const crash: ConformanceArea = {
  name: 'crash',
  checks: [
    {
      name: 'a worker that is killed from inside is noticed: the command’s outcome is unknown, and nothing is left',
      // On the host's own processes this would be a signal to everything.
      skip: ({ provider }) =>
        provider.capabilities.enforcement === 'none' ? 'its processes are the host’s' : undefined,
      run: async (bench) => {
        const sandbox = await bench.provider.create()
        // Whatever stands between the command and the worker goes with it.
        const kill =
          'const kill = (pid) => { try { process.kill(pid, "SIGKILL") } catch {} }; for (const name of require("node:fs").readdirSync("/proc")) { const pid = Number(name); if (pid > 0 && pid !== process.pid) kill(pid) } kill(1); setTimeout(() => undefined, 60000)'
        const thrown: unknown = await sandbox
          .exec(...onNode(bench.subject, ['-e', kill]), { timeout: 30_000 })
          .catch((error: unknown) => error)
        if (thrown instanceof SandboxError) {
          assert.ok(
            ['SALLYPORT_SANDBOX_CONNECTION_LOST', 'SALLYPORT_SANDBOX_DESTROYED'].includes(thrown.code),
            thrown.code,
          )
          assert.equal(thrown.outcome, 'unknown')
          await eventually(() => sandbox.status === 'destroyed', 30_000, 'its end is noticed')
        } else {
          // The worker can not be killed from inside: then it must still answer.
          assert.equal((await sandbox.exec('echo alive')).stdout, 'alive\n')
        }
        await sandbox.destroy()
        await nothingLeft(bench, sandbox.id)
      },
    },
    {
      name: 'what a killed host leaves behind is found by reap, and removed',
      skip: ({ subject }) => (subject.abandon === undefined ? 'the subject has no second host' : undefined),
      run: async (bench) => {
        const id = await bench.subject.abandon?.()
        assert.ok(id !== undefined)
        const kept = await bench.sandbox()
        const reaped = await bench.provider.reap({ olderThanMs: 3_600_000 })
        assert.ok(reaped.includes(id), `reap removed ${reaped.join(' ') || 'nothing'}`)
        assert.equal(reaped.includes(kept.id), false)
        await nothingLeft(bench, id)
        assert.equal((await kept.exec('echo alive')).stdout, 'alive\n')
      },
    },
  ],
}
