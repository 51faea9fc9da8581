/** The whole command line: the gateway's own, and what sandboxes add to it. */
import { type CommandLineExtension, main as runCommandLine } from '../../proxy/cli/main.ts'
import type { Terminal } from '../../proxy/cli/terminal.ts'

/** What sandboxes add. */
export const SANDBOX_COMMANDS: CommandLineExtension = {
  commands: {
    run: async () => (await import('./commands/run.ts')).addRunCommand,
    sandbox: async () => (await import('./commands/sandbox.ts')).addSandboxCommands,
    microvm: async () => (await import('./commands/microvm.ts')).addMicrovmCommands,
    mcp: async () => (await import('./commands/mcp.ts')).addMcpCommand,
  },
  examine: async (environment) => (await import('./doctor-backends.ts')).examineBackends(environment),
}

/** Runs one command line, without the program's own name; gives back the exit code and never throws. */
export function main(args: readonly string[], terminal?: Terminal): Promise<number> {
  return runCommandLine(args, terminal, SANDBOX_COMMANDS)
}
