/** What `sallyport doctor` says of sandboxes: which backends work here, what each enforces, and what installs one that is missing. */
import type { Finding } from '../../proxy/cli/doctor-checks.ts'
import type { Environment } from '../../proxy/config/environment.ts'
import type { Backend } from '../backend.ts'
import { checkRuntimeRoot, defaultRuntimeRoot } from '../runtime-folder.ts'
import { SandboxError } from '../sandbox-error.ts'
import { KNOWN_BACKENDS, type KnownBackendName } from './backend-names.ts'
import { backendForLooking } from './backends.ts'
import { installCommand, isInPath } from './install-command.ts'
import { DEFAULT_IMAGES, imagesIn } from './microvm-images.ts'

/** Asks each backend; starts no sandbox. */
export async function examineBackends(environment: Environment): Promise<readonly Finding[]> {
  const runtimeRoot = checkRuntimeRoot(defaultRuntimeRoot())
  return Promise.all(KNOWN_BACKENDS.map((name) => examine(name, runtimeRoot, environment)))
}

async function examine(name: KnownBackendName, runtimeRoot: string, environment: Environment): Promise<Finding> {
  const title = `sandboxes: ${name}`
  try {
    if (name === 'self-hosted') {
      const lack = await examineMicrovms(runtimeRoot)
      if (lack !== undefined) return { name: title, ...lack }
    }
    const backend = await backendForLooking(name, runtimeRoot, environment)
    try {
      await backend.check()
    } catch (error) {
      // The engine is there, and has no image called `none`.
      if (!(error instanceof SandboxError && error.code === 'SALLYPORT_SANDBOX_IMAGE_MISSING')) throw error
    }
    if (name === 'aci-standby-pool') return { name: title, ...(await examinePool(environment)) }
    const isEnforced = backend.capabilities.enforcement !== 'none'
    return { name: title, status: isEnforced ? 'ok' : 'warn', detail: describe(backend) }
  } catch (error) {
    const detail = error instanceof Error ? (error.message.split('\n')[0] ?? '') : 'unknown fault'
    const isInstalled = name !== 'process' || isInPath('bwrap', environment['PATH'] ?? '')
    const fix = isInstalled ? undefined : installCommand('bubblewrap', environment['PATH'])
    return { name: title, status: 'missing', detail, ...(fix !== undefined && { fix }) }
  }
}

/** All that Firecracker lacks here, and whether QEMU would do; undefined when it lacks nothing. */
async function examineMicrovms(runtimeRoot: string): Promise<Omit<Finding, 'name'> | undefined> {
  const { findMissingForSelfHosted } = await import('../backends/self-hosted.ts')
  const look = async (engine: 'firecracker' | 'qemu'): Promise<string> => {
    const found = await findMissingForSelfHosted({ engine, runtimeRoot, ...imagesIn(DEFAULT_IMAGES) })
    return found.map(({ message }) => message).join('; ')
  }
  const [firecracker, qemu] = await Promise.all([look('firecracker'), look('qemu')])
  if (firecracker === '') return undefined
  return qemu === ''
    ? {
        status: 'warn',
        detail: `only with \`engine: qemu\`, which isolates less and may be slow; for Firecracker: ${firecracker}`,
      }
    : { status: 'missing', detail: firecracker }
}

/** A pool that is set up well may yet have nothing ready. */
async function examinePool(environment: Environment): Promise<Omit<Finding, 'name'>> {
  const { standbyPool } = await import('./elsewhere-backends.ts')
  const { pool, healthy, message, running, creating, capacity } = await standbyPool(environment)
  const detail = `pool \`${pool}\`: ${running} of ${capacity} ready, ${creating} on their way${healthy ? '' : `; Azure calls it degraded${message === '' ? '' : `: ${message}`}`}`
  return { status: healthy && running > 0 ? 'ok' : 'warn', detail }
}

function describe({ capabilities }: Backend): string {
  const { enforcement, memoryLimit, processLimit, timeToLive } = capabilities
  if (enforcement === 'none') return 'nothing is enforced; for `allow-all` and `--report` only'
  const limits = [memoryLimit && 'memory', processLimit && 'processes', timeToLive && 'time'].filter(
    (each) => each !== false,
  )
  const stoppedBy = enforcement === 'platform-port+guest' ? 'platform (other ports) and by rules inside (other addresses)' : enforcement // prettier-ignore
  return `what goes round the gateway is stopped by the ${stoppedBy}; limits of ${limits.join(', ')}`
}
