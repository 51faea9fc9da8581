/** What every adapter's tools promise, tried through the framework itself: a scripted model asks, and what it is told comes back. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { SandboxToolOptions } from '../../../provider/adapters/sandbox-tools.ts'
import type { Sandbox } from '../../../provider/index.ts'
import { describeNeeding } from '../needs.ts'
import { ENDLESS, openRealSandbox, type RealSandbox, untilItIsGone, untilItRuns } from './real-sandbox.ts'

/** One turn: the model asks for this tool, and is asked again with the result. */
export interface Turn {
  readonly sandbox: Sandbox
  readonly options?: SandboxToolOptions
  readonly tool: string
  readonly input: object
  readonly signal?: AbortSignal
}

/** Runs the framework's own loop with a model that asks for one tool and then stops. Returns what the model was told, and whether as an error where the framework can say so. */
export type Drive = (turn: Turn) => Promise<{ readonly text: string; readonly isError?: boolean }>

export function describeTools(name: string, marksErrors: boolean, drive: Drive): void {
  describeNeeding(['bubblewrap', 'curl'], name, () => {
    let real: RealSandbox
    beforeAll(async () => {
      real = await openRealSandbox()
    })
    afterAll(() => real.close())

    const ask = (tool: string, input: object, options?: SandboxToolOptions) =>
      drive({ sandbox: real.sandbox, tool, input, ...(options && { options }) })
    const failed = marksErrors ? { isError: true } : {}
    const fine = marksErrors ? { isError: false } : {}

    test('a command gives its output, errors and exit code', async () => {
      const input = { command: 'cat; pwd; echo bad >&2; exit 3', stdin: 'read\n' }
      expect(await ask('exec', input)).toEqual({
        text: `read\n${real.sandbox.rootDir}\n\n[stderr]\nbad\n\n[exit code 3]`,
        ...failed,
      })
      expect(await ask('exec', { command: 'true' })).toEqual({ text: '[exit code 0]', ...fine })
    })

    test('files are written, listed and read', async () => {
      const { rootDir } = real.sandbox
      expect((await ask('write_file', { path: 'a/b.txt', content: 'grüße' })).text).toBe('7 bytes written')
      expect((await ask('list_files', { path: 'a' })).text).toBe(`7\t${rootDir}/a/b.txt`)
      expect(await ask('read_file', { path: `${rootDir}/a/b.txt` })).toEqual({ text: 'grüße', ...fine })
      const command = { command: 'cat b.txt', cwd: 'a' }
      expect((await ask('exec', command)).text).toBe('grüße\n[exit code 0]')
      expect((await ask('exec', { command: 'pwd' }, { folder: `${rootDir}/a` })).text).toContain(`${rootDir}/a\n`)
    })

    test('an allowed host answers; a refused one gives the model the reason', async () => {
      const { port } = real
      const allowed = await ask('exec', { command: `curl -sS http://open.test:${port}/` })
      expect(allowed.text).toBe('hello from the origin\n\n[exit code 0]')
      const refused = await ask('exec', { command: `curl -sS http://other.test:${port}/` })
      expect(refused.text).toContain('"error":"host_not_allowed"')
      const tunnel = await ask('exec', { command: `curl -sv https://other.test:${port}/` })
      expect(tunnel).toMatchObject(failed)
      expect(tunnel.text).toContain('x-deny-reason: host_not_allowed')
      const notes = () => Promise.resolve('[a note of the host]')
      expect((await ask('exec', { command: 'true' }, { notes })).text).toContain('[a note of the host]')
    })

    test('output is cut and marked, a long file is refused, a long command is ended', async () => {
      const flood = { command: 'head -c 300000 /dev/zero | tr "\\0" a' }
      expect((await ask('exec', flood)).text).toContain(`[${300_000 - 256 * 1024} more bytes of stdout were left out]`)
      expect((await ask('exec', flood, { maxOutputBytes: 10 })).text).toBe(
        'aaaaaaaaaa\n[299990 more bytes of stdout were left out]\n[exit code 0]',
      )
      await real.sandbox.exec('head -c 2000000 /dev/zero > big')
      expect((await ask('read_file', { path: 'big' })).text).toContain('the file has 2000000 bytes')
      expect((await ask('exec', { command: 'sleep 600', timeoutSeconds: 0.2 })).text).toContain('timed out after 0.2 s')
      expect((await ask('exec', { command: 'sleep 600' }, { timeoutSeconds: 0.2 })).text).toContain('timed out')
    })

    test('an aborted run kills the command', async () => {
      const controller = new AbortController()
      const turn = { sandbox: real.sandbox, tool: 'exec', input: { command: ENDLESS }, signal: controller.signal }
      const running = drive(turn).then(
        () => 'told the model',
        () => 'rejected',
      )
      await untilItRuns(real.sandbox)
      controller.abort(new Error('enough'))
      expect(await running).toBe('rejected')
      await untilItIsGone(real.sandbox)
    })

    describe('what goes wrong is told to the model, and the run goes on', () => {
      test('a file that is not there', async () => {
        const told = await ask('read_file', { path: 'nothing-here' })
        expect(told).toMatchObject(failed)
        expect(told.text).toContain('SALLYPORT_SANDBOX_FILE_FAILED')
      })

      test('a file outside', async () => {
        const told = await ask('write_file', { path: '/etc/passwd', content: 'root::0:0' })
        expect(told).toMatchObject(failed)
        expect(told.text).toContain('SALLYPORT_SANDBOX_FILE_FAILED')
      })

      test('input that the model got wrong', async () => {
        const told = await ask('exec', { command: 5 })
        expect(told).toMatchObject(failed)
        expect(told.text).toMatch(/command/)
      })

      test('a sandbox that is gone', async () => {
        const gone = await real.provider.create()
        await gone.destroy()
        const told = await drive({ sandbox: gone, tool: 'exec', input: { command: 'true' } })
        expect(told).toMatchObject(failed)
        expect(told.text).toContain('SALLYPORT_SANDBOX_DESTROYED')
      })
    })
  })
}
