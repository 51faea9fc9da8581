/** Tools and backend in the agents of the real `langchain` and `deepagents`, with the scripted model of the real `@langchain/core`. */
import { AIMessage, type BaseMessage, ToolMessage } from '@langchain/core/messages'
import { fakeModel } from '@langchain/core/testing'
import { createDeepAgent, isSandboxBackend } from 'deepagents'
import { createAgent } from 'langchain'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type DeepagentsBackendOptions, deepagentsBackend, sandboxTools } from '../../../provider/adapters/langchain.ts'
import type { Sandbox } from '../../../provider/index.ts'
import { describeNeeding } from '../needs.ts'
import { ENDLESS, openRealSandbox, type RealSandbox, untilItIsGone, untilItRuns } from './real-sandbox.ts'
import { describeTools } from './tool-contract.ts'

type AgentParts = NonNullable<Parameters<typeof createDeepAgent>[0]>

const scriptOf = (name: string, args: Record<string, unknown>) =>
  fakeModel()
    .respondWithTools([{ name, args, id: 'call-1' }])
    .respond(new AIMessage('done'))

/** The result of the tool, as the second request to the model has it. */
function toldTo({ calls }: ReturnType<typeof fakeModel>) {
  const told = calls[1]?.messages.find((message) => ToolMessage.isInstance(message))
  if (told === undefined) throw new Error('the model was told no result')
  return { text: told.text, isError: told.status === 'error' }
}

async function runDeepAgent(parts: AgentParts, name: string, args: Record<string, unknown>, signal?: AbortSignal) {
  const model = scriptOf(name, args)
  const agent = createDeepAgent({ ...parts, model })
  const input = { messages: [{ role: 'user', content: 'go on' }] }
  const { messages } = (await agent.invoke(input, signal && { signal })) as { messages: BaseMessage[] }
  expect(messages.at(-1)?.text).toBe('done')
  return toldTo(model)
}

describeTools('tools of LangChain', true, async ({ sandbox, options, tool, input, signal }) => {
  const model = scriptOf(tool, { ...input })
  const agent = createAgent({ model, tools: await sandboxTools(sandbox, options) })
  const { messages } = await agent.invoke({ messages: [{ role: 'user', content: 'go on' }] }, signal && { signal })
  expect(messages.at(-1)?.text).toBe('done')
  return toldTo(model)
})

describeNeeding(['bubblewrap', 'curl'], 'the backend of deepagents', () => {
  let real: RealSandbox
  let sandbox: Sandbox
  beforeAll(async () => {
    real = await openRealSandbox()
    sandbox = real.sandbox
  })
  afterAll(() => real.close())
  const ask = async (name: string, args: Record<string, unknown>, options?: DeepagentsBackendOptions) => {
    const { text } = await runDeepAgent({ backend: await deepagentsBackend(sandbox, options) }, name, args)
    return text
  }

  test('is one, to the framework', async () => {
    const backend = await deepagentsBackend(sandbox)
    expect(isSandboxBackend(backend)).toBe(true)
    expect(backend.id).toBe(sandbox.id)
  })

  test('a command gives its output and exit code', async () => {
    expect(await ask('execute', { command: 'pwd; echo bad >&2; exit 3' })).toBe(
      `${sandbox.rootDir}\nbad\n\n[Command failed with exit code 3]`,
    )
  })

  test('the file tools of the agent work in the sandbox', async () => {
    const file = `${sandbox.rootDir}/src/a b.txt`
    await ask('write_file', { file_path: file, content: 'one\ntwo\n' })
    expect((await sandbox.exec('cat', ['src/a b.txt'])).stdout).toBe('one\ntwo\n')
    expect(await ask('read_file', { file_path: file })).toContain('two')
    await ask('edit_file', { file_path: file, old_string: 'two', new_string: 'grün' })
    expect(Buffer.from(await sandbox.readFile(file)).toString()).toBe('one\ngrün\n')
    expect(await ask('ls', { path: `${sandbox.rootDir}/src` })).toContain('a b.txt')
    expect(await ask('grep', { pattern: 'grün', path: sandbox.rootDir })).toContain('a b.txt')
    expect(await ask('glob', { pattern: '**/*.txt', path: sandbox.rootDir })).toContain('a b.txt')
  })

  test('an allowed host answers; a refused one gives the model the reason', async () => {
    const { port } = real
    expect(await ask('execute', { command: `curl -sS http://open.test:${port}/` })).toContain('hello from the origin')
    expect(await ask('execute', { command: `curl -sS http://other.test:${port}/` })).toContain('host_not_allowed')
  })

  test('output is cut and marked, and a long command is ended', async () => {
    const flood = { command: 'head -c 3000 /dev/zero | tr "\\0" a' }
    expect(await ask('execute', flood, { maxOutputBytes: 10 })).toBe(
      `aaaaaaaaaa\n[Command succeeded with exit code 0]\n[Output was truncated due to size limits]`,
    )
    expect(await ask('execute', { command: 'sleep 600' }, { timeoutSeconds: 0.2 })).toContain('timed out after 0.2 s')
  })

  test('an aborted run kills the command', async () => {
    const controller = new AbortController()
    const backend = await deepagentsBackend(sandbox)
    const running = runDeepAgent({ backend }, 'execute', { command: ENDLESS }, controller.signal).then(
      () => 'told the model',
      () => 'rejected',
    )
    await untilItRuns(sandbox)
    controller.abort(new Error('enough'))
    expect(await running).toBe('rejected')
    await untilItIsGone(sandbox)
  })

  test('what goes wrong is told to the model, and the run goes on', async () => {
    expect(await ask('read_file', { file_path: `${sandbox.rootDir}/nothing-here` })).toMatch(/not found|error/i)
    expect(await ask('write_file', { file_path: '/etc/passwd', content: 'root::0:0' })).toMatch(/permission|error/i)
    const gone = await real.provider.create()
    await gone.destroy()
    const parts = { backend: await deepagentsBackend(gone) }
    expect((await runDeepAgent(parts, 'execute', { command: 'true' })).text).toContain('SALLYPORT_SANDBOX_DESTROYED')
  })

  test('uploads and downloads say what became of each file', async () => {
    const backend = await deepagentsBackend(sandbox)
    const bytes = Uint8Array.of(0, 255, 10)
    const at = (name: string): string => `${sandbox.rootDir}/${name}`
    await sandbox.mkdir('folder')
    expect(
      await backend.uploadFiles([
        [at('raw'), bytes],
        ['/etc/passwd', bytes],
        [at('folder'), bytes],
      ]),
    ).toEqual([
      { path: at('raw'), error: null },
      { path: '/etc/passwd', error: 'permission_denied' },
      { path: at('folder'), error: 'is_directory' },
    ])
    const [raw, missing, folder] = await backend.downloadFiles([at('raw'), at('missing'), at('folder')])
    expect([...(raw?.content ?? [])]).toEqual([...bytes])
    expect([missing?.error, folder?.error]).toEqual(['file_not_found', 'is_directory'])
    await sandbox.exec('truncate -s 4G huge')
    expect(await backend.downloadFiles([at('huge')])).toEqual([
      { path: at('huge'), content: null, error: 'invalid_path' },
    ])
  })

  test('limits that are none are refused at once', async () => {
    await expect(deepagentsBackend(sandbox, { timeoutSeconds: 0 })).rejects.toThrow(TypeError)
    await expect(sandboxTools(sandbox, { maxOutputBytes: 0.5 })).rejects.toThrow(TypeError)
  })

  test('tools stand beside those of the agent', async () => {
    const tools = (await sandboxTools(sandbox)).filter(({ name }) => name === 'exec')
    const { text, isError } = await runDeepAgent({ tools }, 'exec', { command: 'exit 4' })
    expect({ text, isError }).toEqual({ text: '[exit code 4]', isError: true })
  })
})
