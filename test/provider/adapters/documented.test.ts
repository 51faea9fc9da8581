/** The examples of docs/agents.md: they typecheck, and run as they are written, with a scripted model in the place of a real one. */
import { AIMessage } from '@langchain/core/messages'
import { fakeModel } from '@langchain/core/testing'
import { setTracingDisabled } from '@openai/agents'
import { assistantMessage, functionCall, ScriptedModel } from '@openai/agents/testing'
import { MockLanguageModelV4 } from 'ai/test'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeNeeding } from '../needs.ts'
import { typeFaults } from '../typecheck.ts'

// It would send what runs do to a service.
setTracingDisabled(true)

const ROOT = path.join(import.meta.dirname, '../../..')
const page = fs.readFileSync(path.join(ROOT, 'docs/agents.md'), 'utf8')
const examples = [...page.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, written = ''], index) => ({
  file: `example-${index}.ts`,
  // As whoever installed the package writes it; here it is the sources.
  code: written.replaceAll(/'sallyport(\/adapters\/[a-z-]+)?'/g, (_all, entry = '/index') =>
    JSON.stringify(path.join(ROOT, `provider${String(entry)}.ts`)),
  ),
}))

let folder: string
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spx-'))
  fs.writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}')
  fs.symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  for (const { file, code } of examples) fs.writeFileSync(path.join(folder, file), code)
  process.env['XDG_RUNTIME_DIR'] = folder
})
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

test('they typecheck', { timeout: 180_000 }, () => {
  expect(typeFaults(examples.map(({ file }) => path.join(folder, file)))).toEqual([])
})

const COMMAND = 'echo "made in $PWD"'
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
}

/** A model that asks for one command and then says `done`, and what it was told. */
const models = {
  'sallyport/adapters/ai-sdk': (tool: string) => {
    const input = JSON.stringify({ command: COMMAND })
    const model = new MockLanguageModelV4({
      doGenerate: [
        {
          content: [{ type: 'tool-call', toolCallId: 'call-1', toolName: tool, input }],
          finishReason: { unified: 'tool-calls', raw: undefined },
          usage,
          warnings: [],
        },
        {
          content: [{ type: 'text', text: 'done' }],
          finishReason: { unified: 'stop', raw: undefined },
          usage,
          warnings: [],
        },
      ],
    })
    return { model, told: () => model.doGenerateCalls.at(-1)?.prompt }
  },
  'sallyport/adapters/langchain': (tool: string) => {
    const model = fakeModel()
      .respondWithTools([{ name: tool, args: { command: COMMAND }, id: 'call-1' }])
      .respond(new AIMessage('done'))
    return { model, told: () => model.calls.at(-1)?.messages.map(({ text }) => text) }
  },
  'sallyport/adapters/openai-agents': (tool: string) => {
    const model = new ScriptedModel([
      [functionCall(tool, { command: COMMAND, cmd: COMMAND }, { callId: 'call-1' })],
      [assistantMessage('done')],
    ])
    return { model, told: () => model.lastCall?.request.input }
  },
}

describeNeeding(['bubblewrap'], 'they run', () => {
  test.each([
    [0, 'sallyport/adapters/ai-sdk', 'exec'],
    [1, 'sallyport/adapters/langchain', 'exec'],
    [2, 'sallyport/adapters/langchain', 'execute'],
    [3, 'sallyport/adapters/openai-agents', 'exec'],
    [4, 'sallyport/adapters/openai-agents', 'exec_command'],
  ] as const)('example %i, with %s', async (index, adapter, tool) => {
    const { model, told } = models[adapter](tool)
    const { ask } = (await import(pathToFileURL(path.join(folder, `example-${index}.ts`)).href)) as {
      ask: (model: unknown, prompt: string) => Promise<string>
    }
    expect(await ask(model, 'go on')).toBe('done')
    expect(JSON.stringify(told())).toContain('made in /workspace')
  })

  test('there is no example that does not', () => {
    expect(examples).toHaveLength(5)
  })
})
