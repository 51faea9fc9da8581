/** `sallyport mcp`: a sandbox as tools of an agent, over standard input and output. */
import { addCommand, type CommandHost } from '../../../proxy/cli/command.ts'
import { packageVersion } from '../../../proxy/cli/package-version.ts'
import { EXIT, type ExitCode, type Terminal, UsageError } from '../../../proxy/cli/terminal.ts'
import type { OpenSandbox } from '../open-sandbox.ts'
import { readSandboxOptions, type SandboxOptions, sandboxOptions } from '../sandbox-options.ts'

/** Adds the command. */
export function addMcpCommand(host: CommandHost): void {
  addCommand<SandboxOptions>(host, {
    usage: 'mcp',
    description:
      'serve one sandbox to an agent by the Model Context Protocol, on standard input and output: exec, read_file, write_file, list_files\n\n' +
      'It is made by the first call and ends with the connection. Needs the package `@modelcontextprotocol/sdk`.',
    examples: [
      'sallyport mcp --allow @pypi --allow api.github.com',
      'claude mcp add sandbox -- npx sallyport mcp --allow @npm',
    ],
    options: sandboxOptions(),
    run: serve,
  })
}

async function serve(terminal: Terminal, options: SandboxOptions): Promise<ExitCode> {
  const request = await readSandboxOptions(terminal, options)
  const { McpServer, StdioServerTransport, addSandboxTools } = await loadSdk()
  const { openSandbox } = await import('../open-sandbox.ts')
  const server = new McpServer({ name: 'sallyport', version: packageVersion() })
  const ended = new AbortController()
  let open: OpenSandbox | undefined
  addSandboxTools(server, async () => {
    open = await openSandbox(terminal, request, { label: 'mcp', signal: ended.signal })
    return open
  })
  await new Promise<void>((resolve, reject) => {
    const end = () => resolve()
    // The transport does not see the end of its input.
    process.stdin.once('end', end).once('close', end)
    terminal.signal.addEventListener('abort', end, { once: true })
    server.server.onclose = end
    server.connect(new StdioServerTransport()).catch(reject)
  })
  ended.abort(new Error('the connection has ended'))
  await server.close()
  await open?.close()
  return EXIT.done
}

/** Loaded when it is needed: whoever does not use this need not have it. */
async function loadSdk() {
  try {
    const [{ McpServer }, { StdioServerTransport }, { addSandboxTools }] = await Promise.all([
      import('@modelcontextprotocol/sdk/server/mcp.js'),
      import('@modelcontextprotocol/sdk/server/stdio.js'),
      import('../mcp-server.ts'),
    ])
    return { McpServer, StdioServerTransport, addSandboxTools }
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND'
    if (!isMissing) throw error
    throw new UsageError(
      '`sallyport mcp` needs a package that is not installed: `npm install @modelcontextprotocol/sdk`',
    )
  }
}
