/** The tool set with `generateText` and `streamText` of the real `ai`, and its own scripted model. */
import { generateText, type ModelMessage, stepCountIs, streamText, type ToolSet } from 'ai'
import { convertArrayToReadableStream, MockLanguageModelV4 } from 'ai/test'
import { expect, onTestFinished, test } from 'vitest'
import { sandboxTools } from '../../../provider/adapters/ai-sdk.ts'
import type { Sandbox } from '../../../provider/index.ts'
import { describeNeeding } from '../needs.ts'
import { openRealSandbox } from './real-sandbox.ts'
import { describeTools } from './tool-contract.ts'

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
}
const asks = (toolName: string, input: object) => ({
  content: [{ type: 'tool-call' as const, toolCallId: 'call-1', toolName, input: JSON.stringify(input) }],
  finishReason: { unified: 'tool-calls' as const, raw: undefined },
  usage,
  warnings: [],
})
const stops = {
  content: [{ type: 'text' as const, text: 'done' }],
  finishReason: { unified: 'stop' as const, raw: undefined },
  usage,
  warnings: [],
}

/** The result of the tool, as the second request to the model has it. */
function toldTo(model: MockLanguageModelV4): { readonly text: string; readonly isError: boolean } {
  const message = model.doGenerateCalls[1]?.prompt.at(-1)
  const [part] = message?.role === 'tool' ? message.content : []
  if (part?.type !== 'tool-result') throw new Error('the model was told no result')
  const { output } = part
  if (!('value' in output)) throw new Error('no value')
  return {
    text: typeof output.value === 'string' ? output.value : JSON.stringify(output.value),
    isError: output.type.startsWith('error'),
  }
}

describeTools('the AI SDK', true, async ({ sandbox, options, tool, input, signal }) => {
  const model = new MockLanguageModelV4({ doGenerate: [asks(tool, input), stops] })
  const messages: ModelMessage[] = [{ role: 'user', content: 'go on' }]
  const tools: ToolSet = sandboxTools(sandbox, options)
  const { text } = await generateText({
    model,
    tools,
    messages,
    stopWhen: stepCountIs(3),
    maxRetries: 0,
    ...(signal && { abortSignal: signal }),
  })
  expect(text).toBe('done')
  return toldTo(model)
})

describeNeeding(['bubblewrap'], 'the tool set', () => {
  test('tells the model what each tool is and takes', async () => {
    const real = await openRealSandbox()
    onTestFinished(() => real.close())
    const model = new MockLanguageModelV4({ doGenerate: [stops] })
    await generateText({ model, tools: sandboxTools(real.sandbox), prompt: 'go on' })
    const tools = model.doGenerateCalls[0]?.tools ?? []
    expect(tools.map(({ name }) => name)).toEqual(['exec', 'read_file', 'write_file', 'list_files'])
    expect(tools[0]).toMatchObject({
      type: 'function',
      description: expect.stringContaining('x-deny-reason') as string,
      inputSchema: { required: ['command'], properties: { command: { type: 'string' } } },
    })
  })

  test('limits that are none are refused at once', () => {
    const sandbox = {} as Sandbox
    for (const options of [{ timeoutSeconds: NaN }, { timeoutSeconds: 3601 }, { maxOutputBytes: -1 }])
      expect(() => sandboxTools(sandbox, options)).toThrow(TypeError)
  })

  test('works for a stream, and its results are typed', async () => {
    const real = await openRealSandbox()
    onTestFinished(() => real.close())
    const call = { type: 'tool-call' as const, toolCallId: 'call-1', toolName: 'exec', input: '{"command":"echo hi"}' }
    const model = new MockLanguageModelV4({
      doStream: {
        stream: convertArrayToReadableStream([
          { type: 'stream-start' as const, warnings: [] },
          call,
          { type: 'finish' as const, finishReason: { unified: 'tool-calls' as const, raw: undefined }, usage },
        ]),
      },
    })
    const { toolResults } = streamText({ model, tools: sandboxTools(real.sandbox), prompt: 'go on' })
    const [result] = await toolResults
    expect(result?.dynamic === true ? undefined : result?.output.text).toBe('hi\n\n[exit code 0]')
  })
})
