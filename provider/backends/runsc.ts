/** Sandboxes that are containers under gVisor: system calls are answered by a kernel of the sandbox's own, in user space. */
import type { Backend } from '../backend.ts'
import { createContainerBackend } from './container-backend.ts'
import type { ContainerOptions } from './container-options.ts'
import type { EngineFacts, EngineRuntime } from './engine-facts.ts'
import { DockerError, RUNSC_ADVICE } from './docker-error.ts'
import { sweepRunsc } from './runsc-leftovers.ts'

/** As for docker, and which runtime it is. */
export interface RunscBackendOptions extends ContainerOptions {
  /** Name under which gVisor is registered with the engine; found out by default. */
  readonly runtimeName?: string
}

const NO_NETWORK = /^--?network=none$/
const HOST_SOCKETS = /^--?(host-uds=(open|all)|fsgofer-host-uds(=true)?)$/

/** A backend for one image. @throws TypeError for a caller's mistake */
export function createRunscBackend({ runtimeName, ...options }: RunscBackendOptions): Backend {
  const network = options.network ?? 'none'
  return createContainerBackend(
    {
      name: 'runsc',
      runtime: (facts) => chooseRunsc(facts, runtimeName, network),
      channel: 'dial-unix',
      foreignKernel: true,
      leftOpen: [
        'a fault in gVisor and in the host’s kernel together is a way out',
        'memory and processors are shared, so that timing tells something of neighbours',
      ],
      advice: `: is the runtime allowed to open host sockets? ${RUNSC_ADVICE}`,
      sweep: sweepRunsc,
    },
    options,
  )
}

/**
 * Of the registered runtimes that are gVisor, the one that can do what is needed.
 *
 * Without a network it needs `--host-uds=open` (or `all`), for the sandbox to reach the host's two sockets, and on kernels that show network settings in every
 * namespace also `--network=none`. With a network of the sandbox's own it must have one. What a wrapper or containerd's own configuration adds is not seen
 * here; those are tried.
 *
 * @throws DockerError `runtime_missing` or `runtime_unusable`
 */
export function chooseRunsc(
  facts: Pick<EngineFacts, 'runtimes'>,
  name: string | undefined,
  network: 'none' | 'internal',
): string {
  const candidates = facts.runtimes.filter((runtime) => (name === undefined ? isRunsc(runtime) : runtime.name === name))
  if (candidates.length === 0) {
    throw new DockerError(
      'runtime_missing',
      `the engine knows no runtime \`${name ?? 'runsc'}\`: install gVisor (\`sudo apt-get install runsc\`), and ${RUNSC_ADVICE}`,
    )
  }
  // One that says outright what is needed, on any kernel if there is such a one; else the first of which nothing is known.
  const suitable = candidates.filter((runtime) => isPlain(runtime) && suits(runtime, network))
  const fit =
    suitable.find((runtime) => has(runtime, NO_NETWORK)) ??
    suitable[0] ??
    candidates.find((runtime) => !isPlain(runtime))
  if (fit !== undefined) return fit.name
  throw new DockerError(
    'runtime_unusable',
    network === 'none'
      ? `the runtime \`${candidates[0]?.name ?? ''}\` may not open the host's sockets: ${RUNSC_ADVICE}`
      : `the runtime \`${candidates[0]?.name ?? ''}\` has no network (\`--network=none\`): use \`network: 'none'\`, or register it without`,
  )
}

function isRunsc({ name, path, type }: EngineRuntime): boolean {
  return /runsc|gvisor/i.test(path ?? '') || /runsc/i.test(type ?? '') || /^(runsc|gvisor)/i.test(name)
}

/** Its arguments are all there is to know. */
function isPlain({ path, type }: EngineRuntime): boolean {
  return type === undefined && /(^|\/)runsc$/.test(path ?? '')
}

function suits(runtime: EngineRuntime, network: 'none' | 'internal'): boolean {
  return network === 'none' ? has(runtime, HOST_SOCKETS) : !has(runtime, NO_NETWORK)
}

function has({ args }: EngineRuntime, pattern: RegExp): boolean {
  return args.some((each) => pattern.test(each))
}
