/** Tools, client and session with the runner of the real `@openai/agents`, and its own scripted model. */
import { Agent, type ModelResponse, run, Runner, setTracingDisabled } from '@openai/agents'
import {
  dir,
  file,
  Manifest,
  type ManifestInit,
  SandboxAgent,
  type SandboxRunConfig,
  shell,
  filesystem,
} from '@openai/agents/sandbox'
import { assistantMessage, functionCall, ScriptedModel } from '@openai/agents/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sandboxClient, sandboxSession, sandboxTools } from '../../../provider/adapters/openai-agents.ts'
import type { Sandbox, SandboxProvider } from '../../../provider/index.ts'
import { describeNeeding } from '../needs.ts'
import { ENDLESS, openRealSandbox, type RealSandbox, untilItIsGone, untilItRuns } from './real-sandbox.ts'
import { describeTools } from './tool-contract.ts'

// It would send what runs do to a service.
setTracingDisabled(true)

const scriptOf = (name: string, input: object) =>
  new ScriptedModel([
    [
      name === 'apply_patch'
        ? { type: 'apply_patch_call', callId: 'call-1', status: 'completed', operation: input as Operation }
        : functionCall(name, { ...input }, { callId: 'call-1' }),
    ],
    [assistantMessage('done')],
  ])
type Operation = Extract<ModelResponse['output'][number], { type: 'apply_patch_call' }>['operation']

/** The result of the tool, as the last request to the model has it. */
function toldTo(model: ScriptedModel): string {
  const input = model.lastCall?.request.input
  const items = Array.isArray(input) ? input : []
  const patch = items.find(({ type }) => type === 'apply_patch_call_output')
  if (patch !== undefined) return JSON.stringify(patch)
  const item = items.find(({ type }) => type === 'function_call_result')
  if (item?.type !== 'function_call_result') throw new Error('the model was told no result')
  const { output } = item
  if (typeof output === 'string') return output
  return 'text' in output ? output.text : JSON.stringify(output)
}

describeTools('function tools of the OpenAI Agents SDK', false, async ({ sandbox, options, tool, input, signal }) => {
  const model = scriptOf(tool, input)
  const agent = new Agent({ name: 'tester', model, tools: await sandboxTools(sandbox, options) })
  const { finalOutput } = await run(agent, 'go on', signal && { signal })
  expect(finalOutput).toBe('done')
  return { text: toldTo(model) }
})

describeNeeding(['bubblewrap', 'curl'], 'sandbox agents of the OpenAI Agents SDK', () => {
  let real: RealSandbox
  let sandbox: Sandbox
  beforeAll(async () => {
    real = await openRealSandbox()
    sandbox = real.sandbox
  })
  afterAll(() => real.close())

  const runIn = async (
    config: SandboxRunConfig,
    name: string,
    input: object,
    { manifest, signal }: { manifest?: ManifestInit; signal?: AbortSignal } = {},
  ): Promise<string> => {
    const model = scriptOf(name, input)
    const agent = new SandboxAgent({
      name: 'tester',
      model,
      capabilities: [shell(), filesystem()],
      ...(manifest && { defaultManifest: manifest }),
    })
    const runner = new Runner({ sandbox: config })
    const { finalOutput } = await runner.run(agent, 'go on', signal && { signal })
    expect(finalOutput).toBe('done')
    return toldTo(model)
  }
  const inSession = async (name: string, input: object, options?: Parameters<typeof sandboxSession>[1]) =>
    runIn({ session: await sandboxSession(sandbox, options) }, name, input)
  const others = async (): Promise<string[]> =>
    (await real.provider.list()).map(({ id }) => id).filter((id) => id !== sandbox.id)

  test('a command gives its output, errors and exit code', async () => {
    const told = await inSession('exec_command', { cmd: 'pwd; echo bad >&2; exit 3' })
    expect(told).toContain('Process exited with code 3')
    expect(told).toContain(`${sandbox.rootDir}\n`)
    expect(told).toContain('bad')
    expect(await inSession('exec_command', { cmd: 'echo $0', shell: 'bash' })).toContain('bash')
  })

  test('an allowed host answers; a refused one gives the model the reason', async () => {
    const { port } = real
    expect(await inSession('exec_command', { cmd: `curl -sS http://open.test:${port}/` })).toContain('hello from')
    const refused = await inSession('exec_command', { cmd: `curl -sS http://other.test:${port}/` })
    expect(refused).toContain('host_not_allowed')
  })

  test('output is cut and marked, and a long command is ended', async () => {
    const cmd = 'head -c 3000 /dev/zero | tr "\\0" a'
    const marked = '[2992 more bytes of stdout were left out]'
    expect(await inSession('exec_command', { cmd }, { maxOutputBytes: 8 })).toContain(marked)
    expect(await inSession('exec_command', { cmd, max_output_tokens: 2 })).toContain(marked)
    const late = await inSession('exec_command', { cmd: 'sleep 600' }, { timeoutSeconds: 0.2 })
    expect(late).toContain('timed out after 0.2 s')
  })

  test('files are patched', async () => {
    const create = { type: 'create_file', path: 'src/a.txt', diff: '+one\n+two\n' }
    await inSession('apply_patch', create)
    expect(Buffer.from(await sandbox.readFile('src/a.txt')).toString()).toMatch(/^one\ntwo\n?$/)
    const update = { type: 'update_file', path: 'src/a.txt', diff: '@@\n one\n-two\n+grün\n', moveTo: 'b.txt' }
    await inSession('apply_patch', update)
    expect(await sandbox.stat('src/a.txt')).toBeUndefined()
    expect(Buffer.from(await sandbox.readFile('b.txt')).toString()).toMatch(/^one\ngrün\n?$/)
    await inSession('apply_patch', { type: 'delete_file', path: 'b.txt' })
    expect(await sandbox.stat('b.txt')).toBeUndefined()
  })

  test('an image is shown, and what is none is not', async () => {
    const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
    await sandbox.writeFile('dot.png', Buffer.from(png, 'base64'))
    await sandbox.writeFile('text.png', 'text')
    const session = await sandboxSession(sandbox)
    const shown = await session.viewImage?.({ path: 'dot.png' })
    expect(shown).toMatchObject({ type: 'image', image: { mediaType: 'image/png' } })
    expect(await inSession('view_image', { path: 'text.png' })).toContain('not a supported image file')
    expect(await inSession('view_image', { path: 'no.png' })).toContain('was not found')
  })

  test('folders are listed and files read as they are', async () => {
    await sandbox.exec('mkdir -p list/sub; touch "list/a\nb" list/.hidden; ln -s nowhere list/link')
    const session = await sandboxSession(sandbox)
    const entries = (await session.listDir?.({ path: 'list' })) ?? []
    expect(Object.fromEntries(entries.map(({ name, type }) => [name, type]))).toEqual({
      sub: 'dir',
      'a\nb': 'file',
      '.hidden': 'file',
      link: 'other',
    })
    await sandbox.writeFile('raw', Uint8Array.of(1, 255, 3))
    expect(await session.readFile?.({ path: 'raw', maxBytes: 2 })).toEqual(Uint8Array.of(1, 255))
    await sandbox.exec('truncate -s 4G huge')
    expect(await session.readFile?.({ path: 'huge' })).toHaveLength(32 * 1024 * 1024)
    const update = { type: 'update_file', path: 'huge', diff: '@@\n-a\n+b\n' }
    expect(await inSession('apply_patch', update)).toContain('too large')
    expect(await session.pathExists?.('raw')).toBe(true)
    expect(await session.directoryExists?.('raw')).toBe(false)
  })

  test('a client gives each run a sandbox of its own, with what the manifest asks for, and takes it away', async () => {
    const client = await sandboxClient(real.provider)
    const manifest = {
      entries: { 'notes.md': file({ content: 'remember\n' }), deep: dir({ children: { er: dir() } }) },
      environment: { MODE: 'test' },
    }
    const cmd = `cat notes.md; ls -d deep/er; echo "$MODE"; test "$PWD" != "${sandbox.rootDir}/x" && echo here`
    const told = await runIn({ client }, 'exec_command', { cmd }, { manifest })
    expect(told).toContain('Output:\nremember\ndeep/er\ntest\nhere')
    expect(await others()).toEqual([])
  })

  test('what a manifest can not have is refused before there is a sandbox', async () => {
    const client = await sandboxClient(real.provider)
    const cases: [ManifestInit, RegExp][] = [
      [{ entries: { repo: { type: 'git_repo', repo: 'a/b' } } }, /git_repo/],
      [{ entries: { etc: { type: 'local_dir', src: '/etc' } } }, /local_dir/],
      [{ entries: { a: dir({ children: { b: { type: 'local_file', src: '/etc/passwd' } } }) } }, /local_file/],
      [{ users: [{ name: 'somebody' }] }, /users/],
    ]
    for (const [manifest, said] of cases) {
      await expect(client.create?.({ manifest: new Manifest(manifest) })).rejects.toThrow(said)
    }
    await expect(client.create?.({ snapshot: { type: 'local' } })).rejects.toThrow(/snapshots/)
    expect(await others()).toEqual([])
  })

  test('limits and signals that are none are refused', async () => {
    await expect(sandboxSession(sandbox, { timeoutSeconds: -1 })).rejects.toThrow(TypeError)
    const client = await sandboxClient(real.provider)
    await expect(client.create?.({ options: { signal: 'soon' } })).rejects.toThrow(TypeError)
    await expect(client.create?.({ options: { signal: AbortSignal.abort() } })).rejects.toThrow(/abort/i)
    expect(await others()).toEqual([])
  })

  test('an entry can not leave the workspace', async () => {
    const session = await sandboxSession(sandbox)
    const entry = file({ content: 'root::0:0' })
    for (const path of ['../../etc/passwd', '/etc/passwd']) {
      await expect(session.materializeEntry?.({ path, entry })).rejects.toThrow()
    }
    expect((await sandbox.exec('cat /etc/passwd')).stdout).not.toContain('root::0:0')
  })

  test('an aborted run kills its commands and takes its sandbox away, told of the signal', async () => {
    const controller = new AbortController()
    const made: Sandbox[] = []
    const create: SandboxProvider['create'] = async (options) => {
      const one = await real.provider.create(options)
      made.push(one)
      return one
    }
    const client = await sandboxClient({ ...real.provider, create })
    const { signal } = controller
    const running = runIn({ client, options: { signal } }, 'exec_command', { cmd: ENDLESS }, { signal }).then(
      () => 'told the model',
      () => 'rejected',
    )
    await expect.poll(() => made.length, { timeout: 20_000 }).toBe(1)
    await untilItRuns(made[0]!)
    controller.abort(new Error('enough'))
    await expect.poll(others, { timeout: 20_000 }).toEqual([])
    expect(await running).toBe('rejected')
  })

  test('the signal of a session kills its commands', async () => {
    const controller = new AbortController()
    const running = inSession('exec_command', { cmd: ENDLESS }, { signal: controller.signal }).catch(() => 'rejected')
    await untilItRuns(sandbox)
    controller.abort(new Error('enough'))
    await untilItIsGone(sandbox)
    await running
    expect(sandbox.status).toBe('ready')
  })

  test('what goes wrong is told to the model, and the run goes on', async () => {
    expect(await inSession('exec_command', { cmd: 'true', tty: true })).toContain('a terminal')
    expect(await inSession('exec_command', { cmd: 'true', workdir: 'nowhere' })).toContain(
      'SALLYPORT_SANDBOX_EXEC_FAILED',
    )
    const outside = { type: 'create_file', path: '/etc/passwd', diff: '+root::0:0' }
    expect(await inSession('apply_patch', outside)).toContain('SALLYPORT_SANDBOX_FILE_FAILED')
    const missing = { type: 'update_file', path: 'missing.txt', diff: '@@\n-a\n+b\n' }
    expect(await inSession('apply_patch', missing)).toContain('there is no file')
    const gone = await real.provider.create()
    await gone.destroy()
    const told = await runIn({ session: await sandboxSession(gone) }, 'exec_command', { cmd: 'true' })
    expect(told).toContain('SALLYPORT_SANDBOX_DESTROYED')
  })
})
