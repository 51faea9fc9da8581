/** The whole command line: the gateway's own, and what sandboxes add to it. */
import { type CommandLineExtension, main as runCommandLine } from '../../proxy/cli/main.ts'
import type { Terminal } from '../../proxy/cli/terminal.ts'
import { addMcpCommand } from './commands/mcp.ts'
import { addMicrovmCommands } from './commands/microvm.ts'
import { addRunCommand } from './commands/run.ts'
import { addSandboxCommands } from './commands/sandbox.ts'

/** What sandboxes add. */
export const SANDBOX_COMMANDS: CommandLineExtension = {
  addCommands: (host) => {
    addRunCommand(host)
    addSandboxCommands(host)
    addMicrovmCommands(host)
    addMcpCommand(host)
  },
  examine: async (environment) => (await import('./doctor-backends.ts')).examineBackends(environment),
}

/** Runs one command line, without the program's own name; gives back the exit code and never throws. */
export function main(args: readonly string[], terminal?: Terminal): Promise<number> {
  return runCommandLine(args, terminal, SANDBOX_COMMANDS)
}
