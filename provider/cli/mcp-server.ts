/** The tools of a sandbox for an agent that speaks the Model Context Protocol. Knows nothing of how the agent is connected. */
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { z } from 'zod'
import { type NetworkRules, SallyportError } from '../../policies/index.ts'
import type { Sandbox } from '../sandbox.ts'
import type { DecisionFeed } from './decision-feed.ts'
import type { OpenSandbox } from './open-sandbox.ts'
import { createTeller } from './tell.ts'

/** Bytes of each stream that one call gives back; the rest is counted. */
const MAX_OUTPUT_BYTES = 256 * 1024
/** Bytes of one file that is read; more is for a command. */
const MAX_FILE_BYTES = 1024 * 1024
const MAX_LISTED = 2_000
const DEFAULT_TIMEOUT_SECONDS = 120
const MAX_TIMEOUT_SECONDS = 3_600

const text = (content: string): CallToolResult => ({ content: [{ type: 'text', text: content }] })
const path = z.string().min(1).describe('Absolute, or relative to the working folder')

/** Adds the tools; `open` is called once, by the first of them that is used. */
export function addSandboxTools(server: McpServer, open: () => Promise<OpenSandbox>): void {
  let opening: Promise<OpenSandbox> | undefined
  const opened = (): Promise<OpenSandbox> =>
    (opening ??= open().catch((error: unknown) => {
      opening = undefined
      throw error
    }))
  /** A fault is the agent's to read, in one line. */
  const using = async (work: (opened: OpenSandbox) => Promise<CallToolResult>): Promise<CallToolResult> => {
    try {
      return await work(await opened())
    } catch (error) {
      const message = error instanceof SallyportError ? `${error.message} (${error.code})` : 'the tool failed'
      return { ...text(message), isError: true }
    }
  }

  server.registerTool(
    'exec',
    {
      title: 'Run a command',
      description:
        'Runs a line of shell in the sandbox and waits for its end. The network is closed but for the hosts that the operator allows; ' +
        'what was refused, and why, is told with the result.',
      inputSchema: {
        command: z.string().min(1).describe('A line for `sh -c`'),
        cwd: z.string().min(1).optional().describe('Working folder'),
        stdin: z.string().optional().describe('What the command reads'),
        timeoutSeconds: z.number().positive().max(MAX_TIMEOUT_SECONDS).optional(),
      },
    },
    ({ command, cwd, stdin, timeoutSeconds = DEFAULT_TIMEOUT_SECONDS }, { signal }) =>
      using(async ({ sandbox, folder, decisions, network }) => {
        const result = await sandbox.exec(command, undefined, {
          cwd: inFolder(folder, cwd),
          signal,
          timeout: Math.ceil(timeoutSeconds * 1000),
          maxOutputBytes: MAX_OUTPUT_BYTES,
          ...(stdin !== undefined && { stdin }),
        })
        const parts = [
          result.stdout,
          cut(result.stdoutTruncated, 'stdout'),
          result.stderr && `[stderr]\n${result.stderr}`,
          cut(result.stderrTruncated, 'stderr'),
          await refusals(decisions, network),
          result.timedOut ? `[timed out after ${timeoutSeconds} s]` : '',
          `[exit code ${result.exitCode}]`,
        ]
        return { ...text(parts.filter((part) => part !== '').join('\n')), isError: result.exitCode !== 0 }
      }),
  )

  server.registerTool(
    'read_file',
    { title: 'Read a file', description: 'Reads a text file of the sandbox, of at most 1 MiB.', inputSchema: { path } },
    (asked) =>
      using(async ({ sandbox, folder }) => {
        const file = inFolder(folder, asked.path)
        const stat = await sandbox.stat(file)
        if (stat !== undefined && stat.size > MAX_FILE_BYTES) {
          return { ...text(`the file has ${stat.size} bytes; read a part of it with \`exec\``), isError: true }
        }
        return text(Buffer.from(await readAtMost(sandbox, file, MAX_FILE_BYTES)).toString('utf8'))
      }),
  )

  server.registerTool(
    'write_file',
    {
      title: 'Write a file',
      description: 'Writes a text file, whole, and makes the folders above it.',
      inputSchema: { path, content: z.string() },
    },
    (asked) =>
      using(async ({ sandbox, folder }) => {
        await sandbox.writeFile(inFolder(folder, asked.path), asked.content)
        return text(`${Buffer.byteLength(asked.content)} bytes written`)
      }),
  )

  server.registerTool(
    'list_files',
    {
      title: 'List files',
      description: 'Lists regular files below a folder with their sizes in bytes.',
      inputSchema: { path: path.optional() },
    },
    (asked) =>
      using(async ({ sandbox, folder }) => {
        const files = await sandbox.listFiles(inFolder(folder, asked.path))
        const lines = files.slice(0, MAX_LISTED).map((file) => `${file.size}\t${file.path}`)
        if (files.length > MAX_LISTED) lines.push(`[${files.length - MAX_LISTED} more]`)
        return text(lines.length === 0 ? 'no files' : lines.join('\n'))
      }),
  )
}

function inFolder(folder: string, asked: string | undefined): string {
  if (asked === undefined) return folder
  return asked.startsWith('/') ? asked : `${folder}/${asked}`
}

/** What was not let out since the last call, and what the operator could change. */
async function refusals(decisions: DecisionFeed, network: NetworkRules): Promise<string> {
  const lines: string[] = []
  const teller = createTeller((line) => lines.push(`[${line}]`), network, { json: false, quiet: false })
  teller.tell(await decisions.read())
  return lines.join('\n')
}

function cut(missing: number | undefined, stream: string): string {
  return missing === undefined ? '' : `[${missing} more bytes of ${stream} were left out]`
}

/** A file may grow while it is read. */
async function readAtMost(sandbox: Sandbox, file: string, limit: number): Promise<Uint8Array> {
  const pieces: Uint8Array[] = []
  let size = 0
  for await (const piece of sandbox.readFileStream(file)) {
    pieces.push(piece)
    size += piece.length
    if (size >= limit) break
  }
  return Buffer.concat(pieces).subarray(0, limit)
}
