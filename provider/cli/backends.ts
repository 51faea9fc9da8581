/** The backends by the names that the command line has for them. Each is loaded when it is used: most runs need one. */
import path from 'node:path'
import { UsageError } from '../../proxy/cli/terminal.ts'
import type { Environment } from '../../proxy/config/environment.ts'
import type { Backend } from '../backend.ts'
import type { ContainerSandboxLayout } from '../backends/container-layout.ts'
import type { MountOption } from '../backends/mounts.ts'
import type { BackendName, KnownBackendName } from './backend-names.ts'
import { DEFAULT_IMAGES, imagesIn } from './microvm-images.ts'

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
export async function backendFor(
  name: BackendName,
  { runtimeRoot, folder, mounts, image = '' }: Inside,
): Promise<FolderBackend> {
  switch (name) {
    case 'process':
      // The folder is a mount like others, so that further ones may lie inside it; home is an empty folder that ends with the sandbox.
      return {
        backend: (await loadProcess())({ runtimeRoot, mounts: [{ hostPath: folder, writable: true }, ...mounts] }),
        folder,
      }
    case 'docker':
    case 'runsc': {
      const place = isTaken(folder) ? '/mnt/outputs' : folder
      const options = { image, layout: layoutOf(folder, place, mounts) }
      return {
        backend: name === 'docker' ? (await loadDocker())(options) : (await loadRunsc())(options),
        folder: place,
      }
    }
    case 'passthrough':
      return { backend: (await loadPassthrough())({ runtimeRoot, workingFolder: folder }), folder }
  }
}

/**
 * A backend that is only asked what there is.
 * @throws SandboxError `SALLYPORT_SANDBOX_BACKEND_MISSING` for one elsewhere that no variable names
 */
export async function backendForLooking(
  name: KnownBackendName,
  runtimeRoot: string,
  environment: Environment,
): Promise<Backend> {
  switch (name) {
    case 'process':
      return (await loadProcess())({ runtimeRoot })
    case 'docker':
      return (await loadDocker())({ image: 'none' })
    case 'runsc':
      return (await loadRunsc())({ image: 'none' })
    case 'self-hosted':
      return (await loadSelfHosted()).createSelfHostedBackend({ runtimeRoot, ...imagesIn(DEFAULT_IMAGES) })
    case 'e2b':
      return (await loadElsewhere()).e2b(environment)
    case 'fly-machines':
      return (await loadElsewhere()).flyMachines(environment)
    case 'aci-standby-pool':
      return (await loadElsewhere()).aciStandbyPool(environment)
    case 'passthrough':
      return (await loadPassthrough())({ runtimeRoot })
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

const loadProcess = async () => (await import('../backends/process.ts')).createProcessBackend
const loadDocker = async () => (await import('../backends/docker.ts')).createDockerBackend
const loadRunsc = async () => (await import('../backends/runsc.ts')).createRunscBackend
const loadElsewhere = async () => import('./elsewhere-backends.ts')
const loadSelfHosted = async () => import('../backends/self-hosted.ts')
const loadPassthrough = async () => (await import('../backends/passthrough.ts')).createPassthroughBackend
