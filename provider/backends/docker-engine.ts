/** One Docker engine: how it is reached, and what is known of it. */
import type http from 'node:http'
import type Docker from 'dockerode'
import type { DockerConnection } from './container-options.ts'
import { DockerError, dockerError, type DockerErrorContext } from './docker-error.ts'
import type { EngineFacts, ImageFacts } from './engine-facts.ts'
import { filterArchitecture } from './syscalls.ts'
import nodeHttp from '../node-http.ts'
import { within } from '../within.ts'

/** An engine. */
export interface DockerEngine {
  readonly docker: Docker
  /** For people. */
  readonly where: string
  /** Asks once, and again after a failure or a minute. */
  readonly facts: () => Promise<EngineFacts>
  readonly image: (name: string) => Promise<ImageFacts>
  /** Does something, and names what goes wrong. */
  readonly attempt: Attempt
  /** The same for what an engine that works answers at once: one that stays silent is none. */
  readonly ask: Attempt
}

type Attempt = <T>(context: Omit<DockerErrorContext, 'engine'>, action: () => Promise<T>) => Promise<T>

/** 20.10: read-only mounts of folders, `host-gateway`, private control groups. */
const MIN_API = [1, 41] as const
const FACTS_MS = 60_000
/** A machine may be busy. */
const ANSWER_MS = 15_000

/** Loads the client. Nothing is asked yet. `answerMs` is for tests. @throws DockerError `client_missing` */
export async function openEngine(
  connection: DockerConnection | undefined,
  answerMs = ANSWER_MS,
): Promise<DockerEngine> {
  const { default: Client } = await import('dockerode').catch((cause: unknown) => {
    throw new DockerError(
      'client_missing',
      'the container backends need the package `dockerode`: `npm install dockerode`',
      cause,
    )
  })
  // No connection is kept: an engine that was restarted meanwhile would break the next request.
  const isLocal =
    connection === undefined ? /^(unix:|npipe:|$)/.test(process.env['DOCKER_HOST'] ?? '') : 'socketPath' in connection
  // Its types lack the agent.
  const settings: Docker.DockerOptions & { readonly agent?: http.Agent } = {
    // The client would prefer the socket of DOCKER_HOST to a host that it is given.
    ...(connection !== undefined && { socketPath: undefined, ...connection }),
    ...(isLocal && { agent: new nodeHttp.Agent({ keepAlive: false }) }),
  }
  const docker = new Client(settings)
  const where = whereOf(connection)
  const attempt: Attempt = async (context, action) => {
    try {
      return await action()
    } catch (error) {
      throw dockerError(error, { ...context, engine: where })
    }
  }
  const ask: Attempt = (context, action) => attempt(context, () => within(answerMs, action, noAnswer))

  let known: { readonly facts: Promise<EngineFacts>; readonly atMs: number } | undefined
  return {
    docker,
    where,
    attempt,
    ask,
    facts: () => {
      if (known !== undefined && performance.now() - known.atMs < FACTS_MS) return known.facts
      const facts = ask({ action: 'ask the engine what it is' }, () => factsOf(docker, where))
      known = { facts, atMs: performance.now() }
      facts.catch(() => (known = undefined))
      return facts
    },
    image: (name) =>
      ask({ action: 'look at the image', image: name }, async () => {
        const { Id, Config } = await docker.getImage(name).inspect()
        const settings = Config as Partial<typeof Config> | null | undefined
        return {
          id: Id,
          env: Object.fromEntries(
            (settings?.Env ?? []).map((each) => [each.split('=', 1)[0] ?? '', each.slice(each.indexOf('=') + 1)]),
          ),
          labels: settings?.Labels ?? {},
          volumes: Object.keys((settings?.Volumes as object | null | undefined) ?? {}),
        }
      }),
  }
}

/** As the system would say it. */
const noAnswer = (): Error => Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' })

async function factsOf(docker: Docker, where: string): Promise<EngineFacts> {
  const [version, info] = await Promise.all([docker.version(), docker.info() as Promise<InfoReply>])
  const [major = 0, minor = 0] = version.ApiVersion.split('.').map(Number)
  if (major < MIN_API[0] || (major === MIN_API[0] && minor < MIN_API[1])) {
    throw new DockerError(
      'engine_too_old',
      `the Docker engine at ${where} is version ${version.Version}; 20.10 (API ${MIN_API.join('.')}) or later is needed: upgrade it`,
    )
  }
  const architecture = filterArchitecture(ARCHITECTURES[version.Arch] ?? version.Arch)
  if (version.Os !== 'linux' || architecture === undefined) {
    throw new DockerError(
      'engine_too_old',
      `the Docker engine at ${where} runs ${version.Os} on ${version.Arch}; Linux on amd64 or arm64 is needed`,
    )
  }
  return {
    version: version.Version,
    major: Number.parseInt(version.Version, 10) || 0,
    kernel: info.KernelVersion ?? version.KernelVersion,
    processors: info.NCPU ?? 1,
    architecture,
    runtimes: Object.entries(info.Runtimes ?? {}).map(([name, { path, runtimeArgs, runtimeType }]) => ({
      name,
      path: path === undefined || path === '' ? undefined : path,
      args: runtimeArgs ?? [],
      type: runtimeType,
    })),
    system: info.OperatingSystem ?? '',
  }
}

/** What is used of the reply; its type says `any`. */
interface InfoReply {
  readonly KernelVersion?: string
  readonly NCPU?: number
  readonly OperatingSystem?: string
  readonly Runtimes?: Readonly<
    Record<
      string,
      { readonly path?: string; readonly runtimeArgs?: readonly string[] | null; readonly runtimeType?: string }
    >
  > | null
}

const ARCHITECTURES: Readonly<Record<string, string>> = { amd64: 'x64', x86_64: 'x64', aarch64: 'arm64' }

/** Never with what a URL may hold before its host. */
function whereOf(connection: DockerConnection | undefined): string {
  if (connection === undefined)
    return process.env['DOCKER_HOST']?.replace(/\/\/[^/@]*@/, '//') ?? '/var/run/docker.sock'
  return 'socketPath' in connection ? connection.socketPath : `${connection.host}:${connection.port}`
}
