/** What an agent can do with a sandbox: the tools, each with its name, description, input and work. Every adapter, and `sallyport mcp`, offers these. */
import { z } from 'zod'
import { SallyportError } from '../../policies/index.ts'
import type { Sandbox } from '../sandbox.ts'
import { readAtMost } from './read-at-most.ts'

/** How the tools of one sandbox behave. */
export interface SandboxToolOptions {
  /** Where commands start and relative paths begin, inside; `rootDir` by default. */
  readonly folder?: string
  /** Bytes of each stream that one command gives back; 256 KiB by default, since it all goes to a model. The rest is counted. */
  readonly maxOutputBytes?: number
  /** Seconds that a command may take when the model does not say; 120 by default. At most an hour, as what the model says. */
  readonly timeoutSeconds?: number
  /** Asked after each command for what the model should know besides its output, such as what was refused meanwhile. */
  readonly notes?: () => Promise<string>
}

/** What a tool works with. */
export interface SandboxToolContext extends SandboxToolOptions {
  readonly sandbox: Sandbox
  /** Kills the command; the call rejects. */
  readonly signal?: AbortSignal | undefined
}

/** What the model reads. */
export interface SandboxToolResult {
  readonly text: string
  readonly isError: boolean
}

/** One tool. */
export interface SandboxTool<Schema extends z.ZodObject = z.ZodObject> {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly inputSchema: Schema
  /** Checks the input, and runs. A fault is a result too; only an aborted call rejects, with the reason of its signal. */
  readonly run: (input: unknown, context: SandboxToolContext) => Promise<SandboxToolResult>
}

const MAX_OUTPUT_BYTES = 256 * 1024
/** Bytes of one file that is read; more is for a command. */
const MAX_FILE_BYTES = 1024 * 1024
const MAX_LISTED = 2_000
const TIMEOUT_SECONDS = 120
const MAX_TIMEOUT_SECONDS = 3_600

const path = z.string().min(1).describe('Absolute, or relative to the working folder')

const exec = define({
  name: 'exec',
  title: 'Run a command',
  description:
    'Runs a line of shell in the sandbox and waits for its end. The network is closed but for the hosts that the operator allows: ' +
    'a connection that is refused (403, `x-deny-reason`) is a decision, not a fault, and trying again does not help.',
  inputSchema: z.object({
    command: z.string().min(1).describe('A line for `sh -c`'),
    cwd: z.string().min(1).optional().describe('Working folder'),
    stdin: z.string().optional().describe('What the command reads'),
    timeoutSeconds: z.number().positive().max(MAX_TIMEOUT_SECONDS).optional(),
  }),
  work: async ({ command, cwd, stdin, ...asked }, { sandbox, signal, notes, ...options }) => {
    const timeoutSeconds = asked.timeoutSeconds ?? options.timeoutSeconds ?? TIMEOUT_SECONDS
    const result = await sandbox.exec(command, undefined, {
      cwd: inFolder(options.folder ?? sandbox.rootDir, cwd),
      timeout: Math.ceil(timeoutSeconds * 1000),
      maxOutputBytes: options.maxOutputBytes ?? MAX_OUTPUT_BYTES,
      ...(signal !== undefined && { signal }),
      ...(stdin !== undefined && { stdin }),
    })
    const parts = [
      result.stdout,
      cut(result.stdoutTruncated, 'stdout'),
      result.stderr && `[stderr]\n${result.stderr}`,
      cut(result.stderrTruncated, 'stderr'),
      (await notes?.()) ?? '',
      result.timedOut ? `[timed out after ${timeoutSeconds} s]` : '',
      `[exit code ${result.exitCode}]`,
    ]
    return { text: parts.filter((part) => part !== '').join('\n'), isError: result.exitCode !== 0 }
  },
})

const readFile = define({
  name: 'read_file',
  title: 'Read a file',
  description: 'Reads a text file of the sandbox, of at most 1 MiB.',
  inputSchema: z.object({ path }),
  work: async (asked, { sandbox, folder = sandbox.rootDir }) => {
    const file = inFolder(folder, asked.path)
    const stat = await sandbox.stat(file)
    if (stat !== undefined && stat.size > MAX_FILE_BYTES) {
      return { text: `the file has ${stat.size} bytes; read a part of it with \`exec\``, isError: true }
    }
    const content = await readAtMost(sandbox, file, MAX_FILE_BYTES)
    return { text: Buffer.from(content).toString('utf8'), isError: false }
  },
})

const writeFile = define({
  name: 'write_file',
  title: 'Write a file',
  description: 'Writes a text file, whole, and makes the folders above it.',
  inputSchema: z.object({ path, content: z.string() }),
  work: async (asked, { sandbox, folder = sandbox.rootDir }) => {
    await sandbox.writeFile(inFolder(folder, asked.path), asked.content)
    return { text: `${Buffer.byteLength(asked.content)} bytes written`, isError: false }
  },
})

const listFiles = define({
  name: 'list_files',
  title: 'List files',
  description: 'Lists regular files below a folder with their sizes in bytes.',
  inputSchema: z.object({ path: path.optional() }),
  work: async (asked, { sandbox, folder = sandbox.rootDir }) => {
    const files = await sandbox.listFiles(inFolder(folder, asked.path))
    const lines = files.slice(0, MAX_LISTED).map((file) => `${file.size}\t${file.path}`)
    if (files.length > MAX_LISTED) lines.push(`[${files.length - MAX_LISTED} more]`)
    return { text: lines.length === 0 ? 'no files' : lines.join('\n'), isError: false }
  },
})

/** All of them, by name. */
export const SANDBOX_TOOLS = { exec, read_file: readFile, write_file: writeFile, list_files: listFiles } as const

/** @throws TypeError for limits that are none */
export function checkLimits({ timeoutSeconds, maxOutputBytes }: SandboxToolOptions): void {
  if (timeoutSeconds !== undefined && !(timeoutSeconds > 0 && timeoutSeconds <= MAX_TIMEOUT_SECONDS)) {
    throw new TypeError(`\`timeoutSeconds\` is above 0, and at most ${MAX_TIMEOUT_SECONDS}`)
  }
  if (maxOutputBytes !== undefined && !(Number.isSafeInteger(maxOutputBytes) && maxOutputBytes >= 0)) {
    throw new TypeError('`maxOutputBytes` is a whole number, 0 or more')
  }
}

/** A fault becomes a line that the model reads. @throws the reason of `signal` once it is aborted */
export async function toolResult(
  work: () => Promise<SandboxToolResult>,
  signal?: AbortSignal,
): Promise<SandboxToolResult> {
  try {
    return await work()
  } catch (error) {
    signal?.throwIfAborted()
    return { text: faultText(error), isError: true }
  }
}

/** One line that names no more than a fault with a code does. */
export function faultText(error: unknown): string {
  return error instanceof SallyportError ? `${error.message} (${error.code})` : 'the tool failed'
}

function define<Schema extends z.ZodObject>({
  work,
  ...tool
}: Omit<SandboxTool<Schema>, 'run'> & {
  readonly work: (input: z.output<Schema>, context: SandboxToolContext) => Promise<SandboxToolResult>
}): SandboxTool<Schema> {
  return {
    ...tool,
    run: (input, context) => {
      const read = tool.inputSchema.safeParse(input)
      if (!read.success) return Promise.resolve({ text: z.prettifyError(read.error), isError: true })
      return toolResult(() => work(read.data, context), context.signal)
    },
  }
}

/** Where `asked` is inside; `folder` itself when nothing was asked for. */
export function inFolder(folder: string, asked: string | undefined): string {
  if (asked === undefined || asked === '') return folder
  return asked.startsWith('/') ? asked : `${folder}/${asked}`
}

/** The mark for output that is not whole; empty when it is. */
export function cut(missing: number | undefined, stream: string): string {
  return missing === undefined ? '' : `[${missing} more bytes of ${stream} were left out]`
}
