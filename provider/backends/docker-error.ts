/** What a Docker engine's refusals mean, and what to do about each. */
import { SandboxError, type SandboxErrorCode } from '../sandbox-error.ts'

/** Why the engine did not do as told. Stable, for programs. */
export type DockerFault =
  | 'client_missing'
  | 'engine_unreachable'
  | 'engine_forbidden'
  | 'engine_too_old'
  | 'image_missing'
  | 'image_unusable'
  | 'name_taken'
  | 'disk_full'
  | 'runtime_missing'
  | 'runtime_unusable'
  | 'network_unsafe'
  | 'sandbox_ended'
  | 'refused'

/** A fault of the engine, with its kind. */
export class DockerError extends SandboxError {
  readonly fault: DockerFault

  /** `message` is one line that says what to do. */
  constructor(fault: DockerFault, message: string, cause?: unknown) {
    super(CODES[fault], message, { cause })
    this.fault = fault
  }
}

/** What was asked for, for the messages. */
export interface DockerErrorContext {
  /** As people say it: `create the container`. */
  readonly action: string
  /** How the engine is reached, without credentials. */
  readonly engine: string
  readonly image?: string | undefined
  readonly name?: string | undefined
  readonly runtime?: string | undefined
}

const CODES: Readonly<Record<DockerFault, SandboxErrorCode>> = {
  client_missing: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  engine_unreachable: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  engine_forbidden: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  engine_too_old: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  image_missing: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
  image_unusable: 'SALLYPORT_SANDBOX_IMAGE_MISSING',
  name_taken: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  disk_full: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  runtime_missing: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  runtime_unusable: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
  network_unsafe: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED',
  sandbox_ended: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
  refused: 'SALLYPORT_SANDBOX_BACKEND_FAILED',
}

const MAX_TEXT_LENGTH = 500

/** Turns whatever the client threw into a {@link DockerError}; one that is already named stays as it is. */
export function dockerError(error: unknown, context: DockerErrorContext): SandboxError {
  if (error instanceof SandboxError) return error
  const { action, engine, image = '', name = '', runtime = '' } = context
  const status = statusOf(error)
  const said = textOf(error)
  const make = (fault: DockerFault, message: string): DockerError => new DockerError(fault, message, error)

  switch ((error as NodeJS.ErrnoException | undefined)?.code) {
    case 'EACCES':
    case 'EPERM':
      return make(
        'engine_forbidden',
        `no permission to use the Docker engine at ${engine}: join its group (\`sudo usermod -aG docker $USER\`, then log in anew), or run rootless Docker`,
      )
    case 'ENOENT':
    case 'ECONNREFUSED':
    case 'ECONNRESET':
    case 'EPIPE':
    case 'EHOSTUNREACH':
    case 'ENOTFOUND':
    case 'ETIMEDOUT':
      return make(
        'engine_unreachable',
        `can not ${action}: no Docker engine answers at ${engine}; start it (\`sudo systemctl start docker\`), or set DOCKER_HOST`,
      )
  }
  if (/no space left on device|disk quota exceeded/i.test(said)) {
    return make(
      'disk_full',
      `can not ${action}: the engine's disk is full; make room (\`docker system df\`, \`docker system prune\`)`,
    )
  }
  if (status === 404 && /no such image/i.test(said)) {
    return make(
      'image_missing',
      `the engine at ${engine} has no image \`${image}\`: build it, or get it with \`docker pull ${image}\``,
    )
  }
  if (status === 409 && /already in use/i.test(said)) {
    return make(
      'name_taken',
      `can not ${action}: the name \`${name}\` is taken by something else; remove that with \`docker rm -f ${name}\``,
    )
  }
  if (/unknown (or invalid )?runtime( name| specified)?/i.test(said)) {
    return make(
      'runtime_missing',
      `the engine at ${engine} knows no runtime \`${runtime}\`: register it in /etc/docker/daemon.json and restart the engine`,
    )
  }
  if (/cannot run with network enabled in root network namespace/i.test(said)) {
    return make(
      'runtime_unusable',
      `the runtime \`${runtime}\` does not start on this kernel as it is registered: ${RUNSC_ADVICE}`,
    )
  }
  if (/exec format error/i.test(said)) {
    return make(
      'image_unusable',
      `the image \`${image}\` is for another processor than this engine's: get it with \`docker pull --platform\` for this one`,
    )
  }
  return make('refused', `can not ${action}: the engine says \`${said}\``)
}

/** How runsc has to be registered. */
export const RUNSC_ADVICE =
  'register it in /etc/docker/daemon.json as "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none", "--host-uds=open"]}, then restart the engine'

/** HTTP status of the engine's reply; undefined when there was none. */
export function statusOf(error: unknown): number | undefined {
  const status = (error as { readonly statusCode?: unknown } | undefined)?.statusCode
  return typeof status === 'number' ? status : undefined
}

/** What the engine said, in one bounded line. */
function textOf(error: unknown): string {
  const { json, message } = (error ?? {}) as {
    readonly json?: { readonly message?: unknown } | null
    readonly message?: unknown
  }
  const text = typeof json?.message === 'string' ? json.message : typeof message === 'string' ? message : 'nothing'
  return text
    .replaceAll(/[\x00-\x1f\x7f`]+/g, ' ')
    .trim()
    .slice(0, MAX_TEXT_LENGTH)
}
