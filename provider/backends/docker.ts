/** Sandboxes that are containers of a Docker engine. What stops a packet is the kernel: there is no network, or one without a way out. */
import type { Backend } from '../backend.ts'
import { createContainerBackend } from './container-backend.ts'
import type { ContainerOptions } from './container-options.ts'

/** See {@link ContainerOptions}. */
export type DockerBackendOptions = ContainerOptions

/** A backend for one image. @throws TypeError for a caller's mistake */
export function createDockerBackend(options: DockerBackendOptions): Backend {
  return createContainerBackend(
    {
      name: 'docker',
      runtime: () => undefined,
      channel: 'socket',
      foreignKernel: false,
      leftOpen: [
        'the kernel is the host’s: a fault in it is a way out',
        'memory and processors are shared, so that timing tells something of neighbours',
      ],
      advice: '',
      sweep: () => Promise.resolve(),
    },
    options,
  )
}
