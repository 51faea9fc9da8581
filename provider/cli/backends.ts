/** The backends by the names that the command line has for them. */
import path from 'node:path'
import { UsageError } from '../../proxy/cli/terminal.ts'
import type { Backend } from '../backend.ts'
import type { ContainerSandboxLayout } from '../backends/container-layout.ts'
import { createDockerBackend } from '../backends/docker.ts'
import type { MountOption } from '../backends/mounts.ts'
import { createPassthroughBackend } from '../backends/passthrough.ts'
import { createProcessBackend } from '../backends/process.ts'
import { createRunscBackend } from '../backends/runsc.ts'

/** All of them. */
export const BACKENDS = ['process', 'docker', 'runsc', 'passthrough'] as const

/** One of {@link BACKENDS}. */
export type BackendName = (typeof BACKENDS)[number]

/** What is seen inside. */
export interface Inside {
  readonly runtimeRoot: string
  /** Writable, under its own path where that can be. */
  readonly folder: string
  readonly mounts: readonly MountOption[]
  readonly image: string | undefined
}

/** A backend for one folder, and where that folder is inside. */
export interface FolderBackend {
  readonly backend: Backend
  readonly folder: string
}

/**
 * Makes it.
 * @throws UsageError and SandboxError for what this backend can't show
 */
export function backendFor(name: BackendName, { runtimeRoot, folder, mounts, image = '' }: Inside): FolderBackend {
  switch (name) {
    case 'process':
      // The folder is a mount like others, so that further ones may lie inside it; home is an empty folder that ends with the sandbox.
      return {
        backend: createProcessBackend({ runtimeRoot, mounts: [{ hostPath: folder, writable: true }, ...mounts] }),
        folder,
      }
    case 'docker':
    case 'runsc': {
      const place = isTaken(folder) ? '/mnt/outputs' : folder
      const options = { image, layout: layoutOf(folder, place, mounts) }
      return { backend: name === 'docker' ? createDockerBackend(options) : createRunscBackend(options), folder: place }
    }
    case 'passthrough':
      return { backend: createPassthroughBackend({ runtimeRoot, workingFolder: folder }), folder }
  }
}

/** A backend that is only asked what there is. */
export function backendForLooking(name: BackendName, runtimeRoot: string): Backend {
  switch (name) {
    case 'process':
      return createProcessBackend({ runtimeRoot })
    case 'docker':
      return createDockerBackend({ image: 'none' })
    case 'runsc':
      return createRunscBackend({ image: 'none' })
    case 'passthrough':
      return createPassthroughBackend({ runtimeRoot })
  }
}

function layoutOf(folder: string, place: string, mounts: readonly MountOption[]): ContainerSandboxLayout {
  const mount = ({ hostPath, path: inside }: MountOption) => ({
    source: { kind: 'hostDir', hostPath } as const,
    containerPath: inside ?? hostPath,
  })
  const [scratch, ...others] = mounts.filter(({ writable }) => writable === true)
  if (others.length > 0) throw new UsageError('in a container one `--mount` may be writable, beside the current folder')
  return {
    outputs: mount({ hostPath: folder, path: place }),
    skills: mounts.filter(({ writable }) => writable !== true).map(mount),
    ...(scratch !== undefined && { scratch: mount(scratch) }),
  }
}

/** Containers have a `/tmp` of their own. */
function isTaken(folder: string): boolean {
  return !path.relative('/tmp', folder).startsWith('..')
}
