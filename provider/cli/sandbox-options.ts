/** The options that `run` and `mcp` share: which backend, what may go out, what is seen inside. Parsed and checked before anything starts. */
import path from 'node:path'
import type { Option } from 'commander'
import { type EgressPolicyData, egressPolicySchema } from '../../policies/index.ts'
import { option, repeatable } from '../../proxy/cli/command.ts'
import { readDocument } from '../../proxy/cli/read-document.ts'
import { type Terminal, UsageError } from '../../proxy/cli/terminal.ts'
import type { MountOption } from '../backends/mounts.ts'
import { BACKENDS, type BackendName } from './backend-names.ts'

/** As commander gives them. */
export interface SandboxOptions {
  readonly allow?: readonly string[]
  readonly policy?: string
  readonly report?: true
  readonly config?: string
  readonly backend: BackendName
  readonly image?: string
  readonly mount?: readonly string[]
  readonly env?: readonly string[]
}

/** What they mean. */
export interface SandboxRequest {
  readonly policy: EgressPolicyData
  /** Everything public is let out, and what the policy would refuse is told. */
  readonly reportOnly: boolean
  /** File with the gateway's own settings. */
  readonly configFile: string | undefined
  readonly backend: BackendName
  readonly image: string | undefined
  /** Writable inside, under its own path. */
  readonly folder: string
  readonly mounts: readonly MountOption[]
  readonly env: Readonly<Record<string, string>>
}

/** Their declarations. */
export function sandboxOptions(): Option[] {
  return [
    repeatable('-a, --allow <host>', 'let this out: a host, `*.host`, host:port, address, range or @set; repeatable'),
    option('--policy <file>', 'a policy as YAML or JSON; `--allow` adds to it. Without either, nothing is let out'),
    option('--report', 'let everything public out, and say what the policy would have refused'),
    option(
      '-c, --config <file>',
      'settings of the gateway, such as network.hosts and network.allowPrivate; its listeners, issuers, state and log are left out',
    ),
    option('-b, --backend <name>', 'what shuts the command in').choices(BACKENDS).default('process'),
    option('--image <name>', 'image for docker and runsc; it must be on the engine'),
    repeatable(
      '--mount <path>',
      'show a host folder inside, read-only: PATH, PATH:INSIDE, or either with `:rw` behind it to make it writable; repeatable',
    ),
    repeatable('-e, --env <name>', 'a variable inside: NAME=VALUE, or NAME for the value it has here; repeatable'),
  ]
}

/** @throws UsageError that says what would be right */
export async function readSandboxOptions(terminal: Terminal, options: SandboxOptions): Promise<SandboxRequest> {
  const { backend, image } = options
  const needsImage = backend === 'docker' || backend === 'runsc'
  if (needsImage && image === undefined) {
    throw new UsageError(`the backend \`${backend}\` needs an image: \`--image debian:stable\`, for instance`)
  }
  if (!needsImage && image !== undefined)
    throw new UsageError(`\`--image\` is for docker and runsc, not for \`${backend}\``)
  if (backend === 'passthrough' && options.mount !== undefined) {
    throw new UsageError('the backend `passthrough` shows everything anyway; leave `--mount` out')
  }
  const policy = await readPolicy(terminal, options)
  if (backend === 'passthrough' && options.report !== true && policy.kind !== 'allow-all') {
    throw new UsageError(
      'the backend `passthrough` stops nothing that goes round the gateway: use `--report`, or a policy `{ kind: allow-all }`',
    )
  }
  return {
    policy,
    reportOnly: options.report === true,
    configFile: options.config,
    backend,
    image,
    folder: process.cwd(),
    mounts: (options.mount ?? []).map(parseMount),
    env: Object.fromEntries((options.env ?? []).map((text) => parseVariable(text, terminal))),
  }
}

async function readPolicy(terminal: Terminal, { policy: file, allow }: SandboxOptions): Promise<EgressPolicyData> {
  const entries = (allow ?? []).flatMap((text) => text.split(',')).filter((text) => text !== '')
  if (file === undefined) return entries.length === 0 ? { kind: 'deny-all' } : { kind: 'static', allowedHosts: entries }
  const read = egressPolicySchema.safeParse(await readDocument(terminal, file))
  if (!read.success) {
    throw new UsageError(
      `\`${file}\` is not a policy; write \`{ kind: static, allowedHosts: [api.example.com] }\`, \`{ kind: allow-all }\` or \`{ kind: deny-all }\``,
    )
  }
  const policy = read.data
  if (entries.length === 0) return policy
  if (policy.kind === 'deny-all') return { kind: 'static', allowedHosts: entries }
  if (policy.kind !== 'static') {
    throw new UsageError(`\`--allow\` adds to a list of hosts, and the policy in \`${file}\` is \`${policy.kind}\``)
  }
  return { ...policy, allowedHosts: [...policy.allowedHosts, ...entries] }
}

function parseMount(text: string): MountOption {
  const parts = text.split(':')
  const last = parts.at(-1)
  const hasMode = parts.length > 1 && (last === 'rw' || last === 'ro')
  const [hostPath = '', inside, ...others] = hasMode ? parts.slice(0, -1) : parts
  const isAsItShouldBe = hostPath !== '' && others.length === 0 && (inside === undefined || path.isAbsolute(inside))
  if (!isAsItShouldBe) throw new UsageError(`\`--mount ${text}\`: write PATH, PATH:/INSIDE, PATH:rw or PATH:/INSIDE:rw`)
  return {
    hostPath: path.resolve(hostPath),
    ...(inside !== undefined && { path: inside }),
    writable: hasMode && last === 'rw',
  }
}

function parseVariable(text: string, terminal: Terminal): readonly [string, string] {
  const at = text.indexOf('=')
  const name = at < 0 ? text : text.slice(0, at)
  if (name === '') throw new UsageError(`\`--env ${text}\`: write NAME=VALUE, or NAME`)
  const value = at < 0 ? terminal.environment[name] : text.slice(at + 1)
  if (value === undefined) throw new UsageError(`\`--env ${name}\`: there is no variable \`${name}\` here to pass on`)
  return [name, value]
}
