/** A sandbox for LangChain and Deep Agents: as tools of `@langchain/core`, or as a backend of `deepagents`: `sallyport/adapters/langchain`. */
import type { StructuredToolInterface } from '@langchain/core/tools'
import type { BaseSandbox, ExecuteResponse, FileOperationError } from 'deepagents'
import type { Sandbox, SandboxExecResult } from '../sandbox.ts'
import { loadPackage } from './load-package.ts'
import { readWhole } from './read-at-most.ts'
import { checkLimits, faultText, SANDBOX_TOOLS, type SandboxToolOptions } from './sandbox-tools.ts'

export type { SandboxToolOptions } from './sandbox-tools.ts'

/** How a backend of `deepagents` behaves. */
export interface DeepagentsBackendOptions {
  /** Seconds that one command may take; 120 by default. */
  readonly timeoutSeconds?: number
  /** Bytes of each stream that one command gives back; 1 MiB by default: the files that an agent reads come this way too. */
  readonly maxOutputBytes?: number
}

const TIMEOUT_SECONDS = 120
const MAX_OUTPUT_BYTES = 1024 * 1024
/** Of one file that is downloaded, and so of one that is edited. */
const MAX_FILE_BYTES = 32 * 1024 * 1024

/**
 * Makes `exec`, `read_file`, `write_file` and `list_files` of a sandbox. What goes wrong is a message of status `error`, and so is an exit code; `signal` of the
 * run kills the command. The sandbox stays yours to destroy.
 * @throws SallyportError `SALLYPORT_PACKAGE_MISSING` without `@langchain/core`; TypeError for limits that are none
 */
export async function sandboxTools(
  sandbox: Sandbox,
  options: SandboxToolOptions = {},
): Promise<StructuredToolInterface[]> {
  checkLimits(options)
  const [{ tool }, { ToolMessage }] = await loadPackage('@langchain/core', () =>
    Promise.all([import('@langchain/core/tools'), import('@langchain/core/messages')]),
  )
  return Object.values(SANDBOX_TOOLS).map(({ name, description, inputSchema, run }) =>
    tool(
      async (input, { signal, toolCall }: { signal?: AbortSignal; toolCall?: { id?: string } }) => {
        const { text, isError } = await run(input, { ...options, sandbox, signal })
        // Without a call to answer there is no message to mark.
        if (!isError || toolCall?.id === undefined) return text
        return new ToolMessage({ content: text, status: 'error', name, tool_call_id: toolCall.id })
      },
      { name, description, schema: inputSchema },
    ),
  )
}

/**
 * Makes the `backend` of `createDeepAgent`: its shell and its file tools work in the sandbox. `signal` of the run kills the command. The sandbox stays yours to
 * destroy.
 * @throws SallyportError `SALLYPORT_PACKAGE_MISSING` without `deepagents` or `@langchain/core`; TypeError for limits that are none
 */
export async function deepagentsBackend(
  sandbox: Sandbox,
  options: DeepagentsBackendOptions = {},
): Promise<BaseSandbox> {
  checkLimits(options)
  const { timeoutSeconds = TIMEOUT_SECONDS, maxOutputBytes = MAX_OUTPUT_BYTES } = options
  const { BaseSandbox } = await loadPackage('deepagents', () => import('deepagents'))
  const { AsyncLocalStorageProviderSingleton } = await loadPackage(
    '@langchain/core',
    () => import('@langchain/core/singletons'),
  )
  /** The protocol passes none on; the run that a tool belongs to has it. */
  const signalOfRun = (): AbortSignal | undefined =>
    (AsyncLocalStorageProviderSingleton.getRunnableConfig() as { signal?: AbortSignal } | undefined)?.signal

  class SallyportBackend extends BaseSandbox {
    override readonly id = sandbox.id

    override async execute(command: string): Promise<ExecuteResponse> {
      const signal = signalOfRun()
      try {
        const timeout = Math.ceil(timeoutSeconds * 1000)
        return responseOf(
          await sandbox.exec(command, undefined, { timeout, maxOutputBytes, ...(signal && { signal }) }),
          timeoutSeconds,
        )
      } catch (error) {
        signal?.throwIfAborted()
        return { output: faultText(error), exitCode: null, truncated: false }
      }
    }

    override uploadFiles(files: [string, Uint8Array][]) {
      return inTurn(files, async ([path, content]) => {
        try {
          await sandbox.writeFile(path, content)
          return { path, error: null }
        } catch {
          return { path, error: await whyNotWritten(sandbox, path) }
        }
      })
    }

    override downloadFiles(paths: string[]) {
      return inTurn(paths, async (path) => {
        try {
          const stat = await sandbox.stat(path)
          if (stat === undefined) return { path, content: null, error: 'file_not_found' as const }
          if (stat.kind === 'directory') return { path, content: null, error: 'is_directory' as const }
          const content = await readWhole(sandbox, path, MAX_FILE_BYTES)
          // The protocol has no word for a file that is too large.
          if (content === undefined) return { path, content: null, error: 'invalid_path' as const }
          return { path, content, error: null }
        } catch {
          return { path, content: null, error: 'permission_denied' as const }
        }
      })
    }
  }
  return new SallyportBackend()
}

function responseOf(result: SandboxExecResult, timeoutSeconds: number): ExecuteResponse {
  const { stdout, stderr, exitCode, timedOut, stdoutTruncated, stderrTruncated } = result
  const output = timedOut ? `${stdout}${stderr}\n[timed out after ${timeoutSeconds} s]` : stdout + stderr
  return { output, exitCode, truncated: stdoutTruncated !== undefined || stderrTruncated !== undefined }
}

async function whyNotWritten(sandbox: Sandbox, path: string): Promise<FileOperationError> {
  const stat = await sandbox.stat(path).catch(() => undefined)
  return stat?.kind === 'directory' ? 'is_directory' : 'permission_denied'
}

/** One after the other: a model may name any number of files. */
async function inTurn<Item, Outcome>(
  items: readonly Item[],
  work: (item: Item) => Promise<Outcome>,
): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  for (const item of items) outcomes.push(await work(item))
  return outcomes
}
