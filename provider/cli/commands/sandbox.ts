/** `sallyport sandbox`: the sandboxes of this machine, whoever made them, and what is left of those that nobody ended. */
import { addCommand, addGroup, option, type CommandHost } from '../../../proxy/cli/command.ts'
import { fromNow, instant, json, table } from '../../../proxy/cli/print.ts'
import { EXIT, type ExitCode, type Terminal, UsageError } from '../../../proxy/cli/terminal.ts'
import { parseSeconds } from '../../../proxy/config/values.ts'
import { checkRuntimeRoot, defaultRuntimeRoot, openRuntimeRoot } from '../../runtime-folder.ts'
import type { SandboxInfo, SandboxProvider } from '../../sandbox.ts'
import { SandboxError } from '../../sandbox-error.ts'
import { KNOWN_BACKENDS, type KnownBackendName } from '../backend-names.ts'

/** Audit logs of gateways whose process has ended are kept so long. */
const KEPT_LOG_MS = 86_400_000

interface SandboxOptions {
  readonly backend?: KnownBackendName
  readonly olderThan?: string
  readonly json?: true
}

/** Adds the group. */
export function addSandboxCommands(host: CommandHost): void {
  const group = addGroup(host, 'sandbox', 'list sandboxes of this machine, and take away what nobody ended', [
    'sallyport sandbox list',
    'sallyport sandbox reap',
  ])
  const backend = option('-b, --backend <name>', 'of this backend alone; by default of all that are there').choices(
    KNOWN_BACKENDS,
  )
  addCommand<SandboxOptions>(group, {
    usage: 'list',
    description: 'list the sandboxes of this user, whichever process made them',
    examples: ['sallyport sandbox list', 'sallyport sandbox list --backend docker --json'],
    options: [backend],
    json: true,
    run: list,
  })
  addCommand<SandboxOptions>(group, {
    usage: 'reap',
    description: 'destroy sandboxes whose time is over or whose process has ended, and their leftovers',
    examples: [
      'sallyport sandbox reap',
      'sallyport sandbox reap --older-than 2h   # also those that still have their process',
    ],
    options: [backend, option('--older-than <time>', 'and everything that is older: `30m`, `2h`')],
    json: true,
    run: reap,
  })
}

async function list(terminal: Terminal, options: SandboxOptions): Promise<ExitCode> {
  const found: (SandboxInfo & { readonly backend: string })[] = []
  await withEach(terminal, options.backend, async (provider) => {
    found.push(...(await provider.list()).map((info) => ({ backend: provider.name, ...info })))
  })
  if (options.json === true) terminal.out(json(found))
  else if (found.length === 0) terminal.out('There are no sandboxes.')
  else {
    const now = Date.now()
    const rows = found.map(({ id, backend, createdAtMs, expiresAtMs, labels }) => [
      id,
      backend,
      fromNow(createdAtMs, now),
      expiresAtMs === undefined ? 'never' : instant(expiresAtMs),
      Object.entries(labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(' '),
    ])
    terminal.out(table([['id', 'backend', 'made', 'ends', 'labels'], ...rows]))
  }
  return EXIT.done
}

async function reap(terminal: Terminal, options: SandboxOptions): Promise<ExitCode> {
  const olderThanMs =
    options.olderThan === undefined ? Infinity : (parseSeconds(options.olderThan) ?? Number.NaN) * 1000
  if (Number.isNaN(olderThanMs))
    throw new UsageError(`\`--older-than ${options.olderThan ?? ''}\`: write a time such as \`30m\` or \`2h\``)
  const destroyed: string[] = []
  await withEach(terminal, options.backend, async (provider) => {
    destroyed.push(...(await provider.reap({ olderThanMs })))
  })
  const { reapGatewayFolders } = await import('../../reap.ts')
  await reapGatewayFolders(checkRuntimeRoot(defaultRuntimeRoot()), Math.min(olderThanMs, KEPT_LOG_MS))
  if (options.json === true) terminal.out(json(destroyed))
  else terminal.out(destroyed.length === 0 ? 'There was nothing to take away.' : destroyed.join('\n'))
  return EXIT.done
}

/** @throws SandboxError of a backend that was named; one that is not on this machine has no sandboxes */
async function withEach(
  terminal: Terminal,
  named: KnownBackendName | undefined,
  look: (provider: SandboxProvider) => Promise<void>,
): Promise<void> {
  const [{ createSandboxProvider }, { backendForLooking }] = await Promise.all([
    import('../../create-provider.ts'),
    import('../backends.ts'),
  ])
  const runtimeRoot = checkRuntimeRoot(defaultRuntimeRoot())
  await openRuntimeRoot(runtimeRoot)
  for (const name of named === undefined ? KNOWN_BACKENDS : [named]) {
    try {
      // Nothing is started, so that no way out is needed.
      const { egress: _egress, ...backend } = await backendForLooking(name, runtimeRoot, terminal.environment)
      const provider = createSandboxProvider({ backend, defaultEgress: { kind: 'allow-all' }, runtimeRoot })
      try {
        await look(provider)
      } finally {
        await provider[Symbol.asyncDispose]()
      }
    } catch (error) {
      const isAbsent = error instanceof SandboxError && error.code === 'SALLYPORT_SANDBOX_BACKEND_MISSING'
      if (named !== undefined || !isAbsent) throw error
    }
  }
}
