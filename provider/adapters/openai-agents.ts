/** A sandbox for the OpenAI Agents SDK (`@openai/agents`): as function tools, or as the client and session of its sandbox agents: `sallyport/adapters/openai-agents`. */
import type { Tool } from '@openai/agents'
import type {
  Manifest,
  SandboxClient,
  SandboxClientCreateArgs,
  SandboxClientOptions,
  SandboxSession,
} from '@openai/agents/sandbox'
import { z } from 'zod'
import type { CreateSandboxOptions, Sandbox, SandboxProvider } from '../sandbox.ts'
import { loadPackage } from './load-package.ts'
import { checkManifest, materialize } from './openai-manifest.ts'
import { type AgentsSandboxOptions, makeSession } from './openai-session.ts'
import { checkLimits, SANDBOX_TOOLS, type SandboxToolOptions } from './sandbox-tools.ts'

export type { AgentsSandboxOptions } from './openai-session.ts'
export type { SandboxToolOptions } from './sandbox-tools.ts'

/** How the sandboxes of a client are made and behave. */
export interface SandboxClientSettings extends AgentsSandboxOptions {
  /** For each `create` of the provider. */
  readonly create?: Omit<CreateSandboxOptions, 'signal'>
}

const PACKAGE = '@openai/agents'

/**
 * Makes `exec`, `read_file`, `write_file` and `list_files` of a sandbox, for `tools` of an agent. What goes wrong is a result that the model reads, and so is an
 * exit code; `signal` of the run kills the command. The sandbox stays yours to destroy.
 * @throws SallyportError `SALLYPORT_PACKAGE_MISSING` without `@openai/agents`; TypeError for limits that are none
 */
export async function sandboxTools(sandbox: Sandbox, options: SandboxToolOptions = {}): Promise<Tool[]> {
  checkLimits(options)
  const { tool } = await loadPackage(PACKAGE, () => import('@openai/agents'))
  return Object.values(SANDBOX_TOOLS).map(({ name, description, inputSchema, run }) =>
    tool({
      name,
      description,
      // Strict schemas can't have parameters that may be left out, so the tool checks its input itself.
      strict: false,
      parameters: jsonSchemaOf(inputSchema),
      execute: async (input, _context, details) =>
        (await run(input, { ...options, sandbox, signal: details?.signal })).text,
    }),
  )
}

/**
 * Makes the `client` of `RunConfig.sandbox`: each run of a `SandboxAgent` gets a sandbox of its own, which is destroyed with it.
 *
 * The workspace is `rootDir`, whatever `root` of the manifest says. Of its entries files and folders with content are made, and its environment goes to commands;
 * all else (users, mounts, repositories, host files, snapshots, ports, terminals) is refused with an error of the SDK.
 *
 * The SDK does not tell a command that its run was aborted, and waits for it: give the run's signal as `options: { signal }` of `RunConfig.sandbox` too.
 * @throws SallyportError `SALLYPORT_PACKAGE_MISSING` without `@openai/agents`; TypeError for limits that are none
 */
export async function sandboxClient(
  provider: SandboxProvider,
  { create, ...options }: SandboxClientSettings = {},
): Promise<SandboxClient> {
  checkLimits(options)
  const { agents, sdk } = await loadSdk()
  return {
    backendId: 'sallyport',
    create: async (asked?: SandboxClientCreateArgs | Manifest, ofManifest?: SandboxClientOptions) => {
      const args = sdk.normalizeSandboxClientCreateArgs(asked, ofManifest)
      const { manifest, snapshot } = args
      const { signal = options.signal } = readRunOptions(args.options)
      if (snapshot !== undefined && !sdk.isNoopSnapshotSpec(snapshot)) {
        throw new sdk.SandboxUnsupportedFeatureError(
          'there are no snapshots of these sandboxes; copy out what should stay',
        )
      }
      checkManifest(sdk, manifest)
      const environment = await manifest.resolveEnvironment()
      const sandbox = await provider.create({ ...create, ...(signal && { signal }) })
      try {
        await materialize(sdk, sandbox, manifest.entries)
        return makeSession(agents, sdk, sandbox, {
          ...options,
          ...(signal && { signal }),
          manifest,
          environment,
          isOwned: true,
        })
      } catch (error) {
        await sandbox.destroy()
        throw error
      }
    },
  }
}

/**
 * Makes the `session` of `RunConfig.sandbox` for a sandbox that stays yours to destroy. The SDK tells a session nothing of the end of a run, so `options.signal`
 * is what kills its commands.
 * @throws SallyportError `SALLYPORT_PACKAGE_MISSING` without `@openai/agents`; TypeError for limits that are none
 */
export async function sandboxSession(sandbox: Sandbox, options: AgentsSandboxOptions = {}): Promise<SandboxSession> {
  checkLimits(options)
  const { agents, sdk } = await loadSdk()
  return makeSession(agents, sdk, sandbox, {
    ...options,
    manifest: new sdk.Manifest(),
    environment: {},
    isOwned: false,
  })
}

/** What a run says of its own. @throws TypeError */
function readRunOptions(options: SandboxClientOptions = {}): { readonly signal?: AbortSignal } {
  const { signal } = options
  if (signal === undefined) return {}
  if (signal instanceof AbortSignal) return { signal }
  throw new TypeError('`signal` is an AbortSignal')
}

async function loadSdk() {
  const [agents, sdk] = await loadPackage(PACKAGE, () =>
    Promise.all([import('@openai/agents'), import('@openai/agents/sandbox')]),
  )
  return { agents, sdk }
}

function jsonSchemaOf(schema: z.ZodObject) {
  const { properties = {}, required = [] } = z.toJSONSchema(schema)
  return { type: 'object' as const, properties, required, additionalProperties: true as const }
}
