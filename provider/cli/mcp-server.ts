/** The tools of a sandbox for an agent that speaks the Model Context Protocol. Knows nothing of how the agent is connected. */
import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import type { NetworkRules } from '../../policies/index.ts'
import { SANDBOX_TOOLS, type SandboxTool, toolResult } from '../adapters/sandbox-tools.ts'
import type { DecisionFeed } from './decision-feed.ts'
import type { OpenSandbox } from './open-sandbox.ts'
import { createTeller } from './tell.ts'

/** Adds the tools; `open` is called once, by the first of them that is used. */
export function addSandboxTools(server: McpServer, open: () => Promise<OpenSandbox>): void {
  let opening: Promise<OpenSandbox> | undefined
  const opened = (): Promise<OpenSandbox> =>
    (opening ??= open().catch((error: unknown) => {
      opening = undefined
      throw error
    }))

  for (const { name, title, description, inputSchema, run } of Object.values<SandboxTool>(SANDBOX_TOOLS)) {
    server.registerTool(name, { title, description, inputSchema: inputSchema.shape }, async (input, { signal }) => {
      const { text, isError } = await toolResult(async () => {
        const { sandbox, folder, decisions, network } = await opened()
        return run(input, { sandbox, folder, signal, notes: () => refusals(decisions, network) })
      }, signal)
      return { content: [{ type: 'text', text }], isError }
    })
  }
}

/** What was not let out since the last call, and what the operator could change. */
async function refusals(decisions: DecisionFeed, network: NetworkRules): Promise<string> {
  const lines: string[] = []
  const teller = createTeller((line) => lines.push(`[${line}]`), network, { json: false, quiet: false })
  teller.tell(await decisions.read())
  return lines.join('\n')
}
