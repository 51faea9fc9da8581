/** Commands: what they are given, what they give back, and how they end. */
import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import type { Sandbox, SandboxOutput } from '../sandbox.ts'
import type { ConformanceArea } from './check.ts'
import { onNode } from './clients.ts'
import { eventually, rejectsWith } from './lifecycle.ts'

const HARD_ARGUMENTS = [
  '',
  ' ',
  'a b',
  "it's",
  '"quoted"',
  '$HOME',
  '`id`',
  '$(id)',
  '*',
  '\\',
  'line\nfeed',
  'é€😀',
  '-n',
  '--',
  ';exit 1',
  '#',
]

/** Writes to `beat` in the background twice a second, for as long as it lives. */
const HEARTBEAT = '(while :; do echo x >> beat; sleep 0.5; done) & '

async function beats(sandbox: Sandbox): Promise<number> {
  return (await sandbox.stat('beat'))?.size ?? 0
}

/** Fails unless the background loop of a command is dead. */
async function heartStopped(sandbox: Sandbox): Promise<void> {
  const before = await beats(sandbox)
  assert.ok(before > 0, 'the loop never ran')
  await delay(1_500)
  assert.equal(await beats(sandbox), before)
  await sandbox.remove('beat')
}

/** The checks. */
export const exec: ConformanceArea = {
  name: 'exec',
  checks: [
    {
      name: 'arguments arrive as they are, whatever a shell would make of them',
      run: async ({ subject, sandbox }) => {
        const { stdout } = await (
          await sandbox()
        ).exec(
          ...onNode(subject, ['-e', 'console.log(JSON.stringify(process.argv.slice(1)))', 'first', ...HARD_ARGUMENTS]),
        )
        assert.deepEqual(JSON.parse(stdout), ['first', ...HARD_ARGUMENTS])
      },
    },
    {
      name: 'a command without arguments is a line for the shell; its streams and its exit code come back apart',
      run: async ({ sandbox }) => {
        const result = await (await sandbox()).exec('echo $((20 + 1)) | cat; echo "wrong" >&2; exit 3')
        assert.partialDeepStrictEqual(result, { exitCode: 3, stdout: '21\n', stderr: 'wrong\n', timedOut: false })
        assert.ok(result.durationMs >= 0)
      },
    },
    {
      name: 'a program that is not there is an error, not a result',
      run: async ({ sandbox }) => {
        await rejectsWith((await sandbox()).exec('/no/such/program', []), 'SALLYPORT_SANDBOX_EXEC_FAILED')
      },
    },
    {
      name: 'a signal that ended it is named',
      run: async ({ sandbox }) => {
        assert.partialDeepStrictEqual(await (await sandbox()).exec('kill -TERM $$'), {
          exitCode: 143,
          signal: 'SIGTERM',
        })
      },
    },
    {
      name: 'a timeout kills the whole process group',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        const result = await inside.exec(`${HEARTBEAT} sleep 300`, undefined, { timeout: 1_500 })
        assert.equal(result.timedOut, true)
        assert.ok(result.durationMs < 20_000)
        await heartStopped(inside)
      },
    },
    {
      name: 'an abort kills the whole process group and rejects with its reason',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        const controller = new AbortController()
        const reason = new Error('enough')
        const running = inside.exec(`${HEARTBEAT} sleep 300`, undefined, { signal: controller.signal })
        await eventually(async () => (await beats(inside)) > 0, 20_000, 'it runs')
        assert.equal(inside.status, 'busy')
        controller.abort(reason)
        await assert.rejects(running, reason)
        assert.equal(inside.status, 'ready')
        await heartStopped(inside)
      },
    },
    {
      name: 'nothing is read unless it is given, and what is given arrives whole',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        assert.partialDeepStrictEqual(await inside.exec('cat', []), { exitCode: 0, stdout: '' })
        const stdin = `${'line of input\n'.repeat(50_000)}é`
        assert.equal((await inside.exec('cat', [], { stdin })).stdout, stdin)
        assert.equal(
          (await inside.exec('od -An -tx1', undefined, { stdin: Uint8Array.of(0, 255, 10) })).stdout.trim(),
          '00 ff 0a',
        )
      },
    },
    {
      name: 'output comes as it is written',
      skip: ({ provider }) => (provider.capabilities.streaming ? undefined : 'the backend does not stream'),
      run: async ({ sandbox }) => {
        const seen: SandboxOutput[] = []
        let isFirstBeforeEnd = false
        const running = (await sandbox()).exec('echo one; echo two >&2; sleep 3; echo three', undefined, {
          onOutput: (chunk) => seen.push(chunk),
        })
        void running.then(() => (isFirstBeforeEnd = false))
        await eventually(() => seen.length >= 2, 20_000, 'the first lines come').then(() => (isFirstBeforeEnd = true))
        assert.equal(isFirstBeforeEnd, true)
        assert.equal(
          seen.some(({ data }) => data.includes('three')),
          false,
        )
        await running
        const said = (stream: string): string =>
          seen
            .filter((chunk) => chunk.stream === stream)
            .map(({ data }) => data)
            .join('')
        assert.deepEqual([said('stdout'), said('stderr')], ['one\nthree\n', 'two\n'])
      },
    },
    {
      name: 'characters are whole however their bytes are written',
      run: async ({ subject, sandbox }) => {
        const slow =
          'const bytes = Buffer.from("é€😀".repeat(20)); let at = 0; const step = () => { if (at < bytes.length) { process.stdout.write(bytes.subarray(at, ++at)); setTimeout(step, 2) } }; step()'
        const pieces: string[] = []
        const { stdout } = await (
          await sandbox()
        ).exec(...onNode(subject, ['-e', slow]), { onOutput: ({ data }) => pieces.push(data) })
        assert.equal(stdout, 'é€😀'.repeat(20))
        assert.equal(pieces.join(''), stdout)
      },
    },
    {
      name: '100 MB of output are counted, and kept as far as was asked',
      run: async ({ sandbox }) => {
        const result = await (
          await sandbox()
        ).exec('head -c 100000000 /dev/zero | tr "\\0" x; echo end >&2', undefined, {
          maxOutputBytes: 1_000_000,
          timeout: 120_000,
        })
        assert.partialDeepStrictEqual(result, { exitCode: 0, stderr: 'end\n' })
        assert.equal(result.stdout.length + (result.stdoutTruncated ?? 0), 100_000_000)
        assert.ok(result.stdout.length <= 1_000_000)
        assert.equal(result.stderrTruncated, undefined)
      },
    },
    {
      name: 'folder and variables are those of the command alone',
      run: async ({ sandbox, provider }) => {
        const inside = await sandbox()
        // Beside those of the command are those of the sandbox, where it needs any.
        const own = provider.capabilities.transparentEgress === true ? '' : 'proxied'
        await inside.mkdir('sub folder')
        const { stdout } = await inside.exec('pwd; echo "$ODD"; echo "${http_proxy:+proxied}"', undefined, {
          cwd: 'sub folder',
          env: { ODD: 'a "b" $c' },
        })
        assert.equal(stdout, `${inside.rootDir}/sub folder\na "b" $c\n${own}\n`)
        assert.equal((await inside.exec('echo "${ODD-unset}"')).stdout, 'unset\n')
      },
    },
    {
      name: 'variables that would change the worker only reach the commands',
      run: async ({ withSandbox }) => {
        const env = {
          NODE_OPTIONS: '--require=/no/such/module',
          LD_PRELOAD: '/no/such/library.so',
          BASH_ENV: '/no/such/file',
        }
        await withSandbox({ env }, async (sandbox) => {
          assert.equal((await sandbox.exec('echo $NODE_OPTIONS')).stdout, '--require=/no/such/module\n')
          await sandbox.writeFile('still', 'works')
        })
      },
    },
    {
      name: 'a background process is written to, read from, found again by its id, and waited for',
      skip: ({ provider }) => (provider.capabilities.spawn ? undefined : 'the backend has no background processes'),
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        const process = await inside.spawn('while read -r line; do echo "got $line"; done; echo bye; exit 4')
        await process.write('one\n')
        const again = await inside.attachProcess(process.id)
        await again.write('two\n')
        await again.closeStdin()
        const waited = process.wait()
        let said = ''
        for await (const { data } of again.output()) said += data
        assert.equal(said, 'got one\ngot two\nbye\n')
        assert.partialDeepStrictEqual(await waited, { exitCode: 4, stdout: said })
        await rejectsWith(inside.attachProcess('nobody'), 'SALLYPORT_SANDBOX_NOT_FOUND')
      },
    },
    {
      name: 'killing a background process kills its group',
      skip: ({ provider }) => (provider.capabilities.spawn ? undefined : 'the backend has no background processes'),
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        const process = await inside.spawn(`${HEARTBEAT} sleep 300`)
        await eventually(async () => (await beats(inside)) > 0, 20_000, 'it runs')
        await process.kill()
        assert.partialDeepStrictEqual(await process.wait(), { exitCode: 137, signal: 'SIGKILL' })
        await heartStopped(inside)
      },
    },
    {
      name: 'twenty commands at once keep their outputs apart',
      run: async ({ sandbox }) => {
        const inside = await sandbox()
        const numbers = Array.from({ length: 20 }, (_, index) => index)
        const results = await Promise.all(
          numbers.map((number) => inside.exec(`echo out-${number}; echo err-${number} >&2; exit ${number}`)),
        )
        assert.deepEqual(
          results.map(({ exitCode, stdout, stderr }) => [exitCode, stdout, stderr]),
          numbers.map((number) => [number, `out-${number}\n`, `err-${number}\n`]),
        )
        assert.equal(inside.status, 'ready')
      },
    },
  ],
}
