/** A sandbox as a tool set of the AI SDK (`ai`): `sallyport/adapters/ai-sdk`. */
import type { Tool } from 'ai'
import type { z } from 'zod'
import type { Sandbox } from '../sandbox.ts'
import {
  checkLimits,
  SANDBOX_TOOLS,
  type SandboxTool,
  type SandboxToolOptions,
  type SandboxToolResult,
} from './sandbox-tools.ts'

export type { SandboxToolOptions, SandboxToolResult } from './sandbox-tools.ts'

type Tools = typeof SANDBOX_TOOLS

/** For `tools` of `generateText`, `streamText` and agents. */
export type AiSdkSandboxTools = {
  readonly [Name in keyof Tools]: Tool<z.output<Tools[Name]['inputSchema']>, SandboxToolResult>
}

/**
 * Makes `exec`, `read_file`, `write_file` and `list_files` of a sandbox. What goes wrong is a result that the model reads, and so is an exit code; `abortSignal`
 * of the call kills the command. The sandbox stays yours to destroy.
 * @throws TypeError for limits that are none
 */
export function sandboxTools(sandbox: Sandbox, options: SandboxToolOptions = {}): AiSdkSandboxTools {
  checkLimits(options)
  const { exec, read_file, write_file, list_files } = SANDBOX_TOOLS
  const make = <Schema extends z.ZodObject>({
    description,
    inputSchema,
    run,
  }: SandboxTool<Schema>): Tool<z.output<Schema>, SandboxToolResult> => ({
    description,
    inputSchema,
    execute: (input, { abortSignal }) => run(input, { ...options, sandbox, signal: abortSignal }),
    toModelOutput: ({ output: { text, isError } }) => ({ type: isError ? 'error-text' : 'text', value: text }),
  })
  return { exec: make(exec), read_file: make(read_file), write_file: make(write_file), list_files: make(list_files) }
}
