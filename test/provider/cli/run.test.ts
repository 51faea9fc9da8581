/** `sallyport run` as its users have it: the real binary, real bubblewrap, a real origin behind the gateway. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { main } from '../../../provider/cli/main.ts'
import { runBinary, startBinary } from '../../proxy/cli/run-cli.ts'
import { describeNeeding } from '../needs.ts'
import { openSurrounds, type Surrounds } from './origin.ts'

// Each test starts whole processes, on a machine that may be busy.
vi.setConfig({ testTimeout: 120_000 })

let around: Surrounds
beforeAll(async () => {
  around = await openSurrounds()
})
afterAll(() => around.close())

async function run(options: readonly string[], command: readonly string[], input = '') {
  const { folder: cwd, environment } = around
  return runBinary(['run', ...options, '--', ...command], { cwd, environment, input })
}

const curl = (host: string): string[] => ['curl', '-sS', '--max-time', '20', `http://${host}:${around.port}/`]

describeNeeding(['bubblewrap'], 'sallyport run', () => {
  afterEach(() => {
    expect(readdirSync(around.runtimeRoot), 'nothing is left on the host').toEqual([])
  })

  test('passes on output, errors and the exit code, and says nothing of its own', async () => {
    const { code, stdout, stderr } = await run([], ['sh', '-c', 'echo out; echo err >&2; exit 7'])
    expect({ code, stdout, stderr }).toEqual({ code: 7, stdout: 'out\n', stderr: 'err\n' })
  })

  test('passes on arguments and bytes as they are', async () => {
    const args = ['a b', '', "it's", '$HOME', '--json']
    const printed = await run([], ['printf', String.raw`<%s>`, ...args])
    expect(printed.stdout).toBe(`<a b><><it's><$HOME><--json>`)
    const bytes = await run([], ['sh', '-c', String.raw`printf '\303\050\377' | od -An -tx1; printf '\377' >&2`])
    expect(bytes.stdout.trim()).toBe('c3 28 ff')
  })

  test('input is read by the command, whole and to its end', async () => {
    const input = Array.from({ length: 50_000 }, (_, index) => `${index}\n`).join('')
    const { stdout } = await run([], ['cat'], input)
    expect(stdout).toBe(input)
    expect((await run(['--no-stdin'], ['cat'], 'ignored')).stdout).toBe('')
  })

  test('the folder is writable, the rest is not, and a home folder is not there', async () => {
    mkdirSync(join(around.folder, '.sallyport'), { recursive: true })
    writeFileSync(join(around.folder, '.sallyport', 'key'), 'a key that signs tokens')
    const { stdout } = await run(
      [],
      [
        'sh',
        '-c',
        'echo made > made.txt; pwd; touch /usr/x /etc/x 2>/dev/null || echo read-only; ls -A "$HOME" .sallyport; ls /root /home 2>/dev/null; touch .sallyport/x 2>/dev/null || echo covered',
      ],
    )
    expect(stdout.split('\n')).toEqual([around.folder, 'read-only', '.sallyport:', '', '/workspace:', 'covered', ''])
    expect(readFileSync(join(around.folder, 'made.txt'), 'utf8')).toBe('made\n')
  })

  test('mounts and variables are as asked, and no others', async () => {
    const shown = join(around.folder, '..', 'shown')
    mkdirSync(shown, { recursive: true })
    writeFileSync(join(shown, 'file'), 'shown')
    const { stdout } = await runBinary(
      [
        ...['run', '--mount', `${shown}:/data`, '--env', 'A=1', '--env', 'PASSED', '--'],
        ...['sh', '-c', 'cat /data/file; touch /data/x 2>/dev/null || echo " ro"; echo "$A $PASSED [$SECRET]"'],
      ],
      { cwd: around.folder, environment: { ...around.environment, PASSED: 'yes', SECRET: 'marker-7f3a' } },
    )
    expect(stdout).toBe('shown ro\n1 yes []\n')
  })

  test('nothing gets out without being allowed, and the line that it says lets it out', async () => {
    const before = around.requests()
    const refused = await run(['--config', around.config], curl('open.test'))
    expect(refused.stdout).toContain('"error":"host_not_allowed"')
    const entry = `open.test:${around.port}`
    expect(refused.stderr).toContain(
      `sallyport: refused ${entry}: host_not_allowed (--allow ${entry} lets it through)\n`,
    )
    expect(around.requests()).toBe(before)

    const suggested = /to let it through, add: (.+)\n/.exec(refused.stderr)?.[1] ?? ''
    const allowed = await run(['--config', around.config, ...suggested.split(' ')], curl('open.test'))
    expect(allowed.stdout).toBe('hello from open.test\n')
    expect(allowed.stderr).toBe('sallyport: connections: 1 let out\n')
    expect(around.requests()).toBe(before + 1)
  })

  test('a refusal is told while the command still runs', async () => {
    const line = `${curl('open.test').join(' ')}; read -r line; echo "read $line"`
    const running = startBinary(
      ['run', '--no-stdin', '--config', around.config, '--', 'sh', '-c', `${line}; sleep 60`],
      {
        cwd: around.folder,
        environment: around.environment,
      },
    )
    await running.until('stderr', /refused open\.test/)
    running.kill('SIGTERM')
    expect(await running.ended).toBe(143)
  })

  test('what goes round the gateway reaches nothing', async () => {
    const { code } = await run(
      ['--config', around.config, '--allow', 'open.test:*'],
      ['curl', '-sS', '--noproxy', '*', '--max-time', '5', `http://127.0.0.1:${around.port}/`],
    )
    expect(code).not.toBe(0)
  })

  test('reporting lets it out, and says what would have been refused', async () => {
    const entry = `other.test:${around.port}`
    const { stdout, stderr } = await run(['--config', around.config, '--report'], curl('other.test'))
    expect(stdout).toBe('hello from other.test\n')
    expect(stderr).toContain(`would be refused ${entry}: host_not_allowed`)
    expect(stderr).toContain(`add: --allow ${entry}\n`)
  })

  test('a policy file is obeyed, and --allow adds to it', async () => {
    const policy = join(around.folder, '..', 'policy.yaml')
    writeFileSync(
      policy,
      `{ kind: static, allowedHosts: ['open.test:${around.port}', 'other.test:${around.port}'], deniedHosts: [other.test] }`,
    )
    const options = ['--config', around.config, '--policy', policy]
    expect((await run(options, curl('open.test'))).stdout).toBe('hello from open.test\n')
    const denied = await run([...options, '--allow', `other.test:${around.port}`], curl('other.test'))
    expect(denied.stderr).toContain('host_denied (the entry other.test of `deniedHosts` denies it)')
    expect(denied.stderr).not.toContain('add: --allow')
  })

  test('with --json each connection and the summary is a line', async () => {
    const { stderr } = await run(['--config', around.config, '--json'], curl('open.test'))
    const lines = stderr.trim().split('\n')
    const [event, summary] = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
    const entry = `open.test:${around.port}`
    expect(event).toMatchObject({ event: 'refused', destination: entry, reason: 'host_not_allowed', allow: entry })
    expect(summary).toMatchObject({ event: 'summary', exitCode: 0, timedOut: false, allow: [entry], uncounted: 0 })
  })

  test('a private address is not offered, since no --allow would open it', async () => {
    const { stderr } = await run([], ['curl', '-sS', 'http://169.254.169.254/'])
    expect(stderr).toContain('refused 169.254.169.254:80: address_not_allowed (it is a private or special address')
    expect(stderr).not.toContain('add: --allow')
  })

  test.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('%s is for the command', async (signal) => {
    const running = startBinary(
      [
        'run',
        '--',
        'sh',
        '-c',
        `trap "echo caught; exit 5" ${signal.slice(3)}; echo ready; while :; do sleep 0.1; done`,
      ],
      { cwd: around.folder, environment: around.environment },
    )
    await running.until('stdout', /ready/)
    running.kill(signal)
    expect(await running.ended).toBe(5)
    expect(running.stdout()).toBe('ready\ncaught\n')
  })

  test('whoever does not listen to a signal is killed at the fourth', async () => {
    const running = startBinary(
      ['run', '--', 'sh', '-c', 'trap "echo no" TERM; echo ready; while :; do sleep 0.1; done'],
      {
        cwd: around.folder,
        environment: around.environment,
      },
    )
    await running.until('stdout', /ready/)
    for (const count of [1, 2, 3]) {
      running.kill('SIGTERM')
      await running.until('stdout', new RegExp(`(no\n){${count}}`))
    }
    running.kill('SIGTERM')
    expect(await running.ended).toBe(125)
  })

  test('a command that takes too long ends with 124', async () => {
    const { code, stderr } = await run(['--timeout', '1s'], ['sleep', '60'])
    expect(code).toBe(124)
    expect(stderr).toBe('sallyport: stopped after 1s\n')
  })

  test('a reader that leaves ends it, and everything is taken away', async () => {
    const binary = join(import.meta.dirname, '../../../provider/cli/bin.ts')
    const { code, stdout } = await runShell(
      `"${process.execPath}" "${binary}" run -- yes | head -n 1; echo "\${PIPESTATUS[0]}"`,
    )
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'y\n141\n' })
  })

  test('a terminal is kept, with its size, its changes and Ctrl-C', async () => {
    const { stdout } = await runShell(`python3 "${join(import.meta.dirname, 'in-terminal.py')}"`)
    expect(stdout.trim().split('\n').at(-1)).toBe('tty size-33-99 size-44-55 echoed interrupted')
  })

  test.each([
    ['no program', ['nothing-of-this-name'], 127],
    ['no executable', ['/etc/passwd'], 126],
  ])('%s ends as in a shell', async (_name, command, expected) => {
    expect((await run([], command)).code).toBe(expected)
  })
})

async function runShell(line: string) {
  const { spawn } = await import('node:child_process')
  const child = spawn('bash', ['-c', line], {
    cwd: around.folder,
    env: { PATH: process.env['PATH'], ...around.environment, NODE: process.execPath },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let stdout = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (stdout += chunk))
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve))
  return { code, stdout }
}

test('a sandbox that can not be made leaves nothing behind', async () => {
  const asked = ['--backend', 'docker', '--image', 'none']
  const { folder: cwd, environment } = around
  const { code, stderr } = await runBinary(['run', ...asked, '--', 'true'], {
    cwd,
    environment: { ...environment, DOCKER_HOST: 'unix:///nonexistent/docker.sock' },
  })
  expect(code).toBe(125)
  expect(stderr).toContain('no Docker engine answers')
  expect(readdirSync(around.runtimeRoot)).toEqual([])
})

test('without a wall it only reports, and everything is taken away all the same', async () => {
  const { code, stdout, stderr } = await run(
    ['--backend', 'passthrough', '--report', '--config', around.config],
    ['sh', '-c', `pwd; ${curl('open.test').join(' ')}`],
  )
  expect({ code, stdout }).toEqual({ code: 0, stdout: `${around.folder}\nhello from open.test\n` })
  expect(stderr).toContain(`would be refused open.test:${around.port}: host_not_allowed`)
  expect(readdirSync(around.runtimeRoot)).toEqual([])
})

test.each([
  ['a host that is none', ['--allow', 'https://x.example/'], 'this can not be allowed'],
  ['an image for processes', ['--image', 'x'], '`--image` is for docker and runsc'],
  ['docker without an image', ['--backend', 'docker'], 'needs an image'],
  ['a policy that nothing enforces', ['--backend', 'passthrough', '--allow', 'a.example'], 'stops nothing'],
  ['a variable that is not there', ['--env', 'NOT_HERE'], 'there is no variable `NOT_HERE` here'],
  ['a mount that can not be read', ['--mount', 'a:b'], 'write PATH, PATH:/INSIDE'],
  ['a time that is none', ['--timeout', 'soon'], 'write a time such as'],
  ['a policy that is none', ['--policy', '/dev/null'], 'is not a policy'],
])('%s is wrong usage, in one line', async (_name, options, message) => {
  const said: string[] = []
  const code = await main(['run', ...options, '--', 'true'], {
    out: () => undefined,
    err: (text) => void said.push(text),
    environment: {},
    readInput: () => Promise.resolve(''),
    signal: new AbortController().signal,
  })
  expect(code).toBe(3)
  expect(said).toHaveLength(1)
  expect(said[0]).toContain(message)
})

test('without bubblewrap it says the one command that installs it', async () => {
  const tools = join(around.folder, '..', 'tools')
  mkdirSync(tools)
  writeFileSync(join(tools, 'apt-get'), '#!/bin/sh\n', { mode: 0o755 })
  const { failed } = await import('../../../provider/cli/commands/run.ts')
  const { SandboxError } = await import('../../../provider/sandbox-error.ts')
  const said: string[] = []
  const code = failed(
    { err: (line) => void said.push(line) },
    new SandboxError('SALLYPORT_SANDBOX_BACKEND_MISSING', 'bubblewrap is not installed'),
    { backend: 'process', searchPath: tools, isInstalled: false },
  )
  expect(code).toBe(125)
  expect(said.join('\n')).toMatch(/not installed.*\n\n {2}(sudo )?apt-get install -y bubblewrap\n/)
})
