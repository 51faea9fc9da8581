/** Where folders of the host, or of the image, are in a container: the writable one that is `rootDir`, and those that the agent may read. */
import { SandboxError } from '../sandbox-error.ts'
import { resolveMount, type MountContext } from './mounts.ts'

/** Where the content of a folder is. */
export type ContainerSandboxMountSource =
  | { readonly kind: 'hostDir'; readonly hostPath: string }
  /** Of Azure's backends alone. */
  | {
      readonly kind: 'azureFileShare'
      readonly storageAccountName: string
      readonly shareName: string
      readonly storageAccountKey: string
    }
  /** The image has it at `containerPath`. */
  | { readonly kind: 'inImage' }

/** One folder. */
export interface ContainerSandboxMount {
  readonly source: ContainerSandboxMountSource
  /** Absolute path inside; each folder of a layout has its own default. */
  readonly containerPath?: string
}

/** The folders of a sandbox. */
export interface ContainerSandboxLayout {
  /** Writable; it is `rootDir`. `/mnt/outputs` by default. */
  readonly outputs: ContainerSandboxMount
  /** Read-only; `/mnt/uploads` by default. */
  readonly uploads?: ContainerSandboxMount
  /** Writable; `/mnt/scratch` by default. */
  readonly scratch?: ContainerSandboxMount
  /** Read-only; `/mnt/tool-results` by default. */
  readonly toolResults?: ContainerSandboxMount
  /** Read-only; `/mnt/transcripts` by default. */
  readonly transcripts?: ContainerSandboxMount
  /** Read-only; `/mnt/skills/0`, `/mnt/skills/1`… by default. */
  readonly skills?: readonly ContainerSandboxMount[]
}

/** A folder, checked. */
export interface ContainerFolder {
  readonly path: string
  readonly writable: boolean
  /** Undefined for a folder of the image. */
  readonly hostPath?: string
}

/** Without a layout: a folder in memory, gone with the sandbox. */
export const DEFAULT_ROOT = '/workspace'

const RESERVED = ['/proc', '/sys', '/dev', '/run/sallyport', '/tmp']

/**
 * Checks a layout; the first folder is `rootDir`.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED`
 */
export function resolveLayout(layout: ContainerSandboxLayout, context: MountContext): readonly ContainerFolder[] {
  const resolve = (mount: ContainerSandboxMount, name: string, writable: boolean): ContainerFolder => {
    const { source, containerPath = `/mnt/${name}` } = mount
    checkPath(containerPath)
    switch (source.kind) {
      case 'hostDir': {
        const { hostPath, path } = resolveMount({ hostPath: source.hostPath, path: containerPath, writable }, context)
        return { path, writable, hostPath }
      }
      case 'inImage':
        return { path: containerPath, writable }
      case 'azureFileShare':
        throw refused(
          `\`${name}\` is an Azure file share, which a container of this machine can not mount; use { kind: 'hostDir', hostPath }`,
        )
    }
  }
  const folders = [
    resolve(layout.outputs, 'outputs', true),
    ...(layout.uploads ? [resolve(layout.uploads, 'uploads', false)] : []),
    ...(layout.scratch ? [resolve(layout.scratch, 'scratch', true)] : []),
    ...(layout.toolResults ? [resolve(layout.toolResults, 'tool-results', false)] : []),
    ...(layout.transcripts ? [resolve(layout.transcripts, 'transcripts', false)] : []),
    ...(layout.skills ?? []).map((skill, index) => resolve(skill, `skills/${index}`, false)),
  ]
  const paths = folders.map(({ path }) => path)
  const twice = paths.find((path, index) => paths.indexOf(path) !== index)
  if (twice !== undefined) throw refused(`two folders have the place \`${twice}\``)
  return folders
}

function checkPath(path: string): void {
  const isPlain = /^(\/[^/\0:,]+)+$/.test(path) && !/\/\.{1,2}(\/|$)/.test(path)
  if (!isPlain) throw refused(`\`${path}\` is not a plain absolute path without colons and commas`)
  const taken = RESERVED.find((each) => path === each || path.startsWith(`${each}/`) || each.startsWith(`${path}/`))
  if (taken !== undefined) throw refused(`\`${path}\` can not be used as a place inside: \`${taken}\` is taken`)
}

function refused(message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_NOT_SUPPORTED', message)
}
