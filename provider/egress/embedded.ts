/** A gateway inside this process, for all sandboxes of one provider. It listens on their sockets and nowhere else. */
import { randomBytes } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import {
  ConfigError,
  type ConfigInput,
  createGateway,
  type Gateway,
  type GatewayLogger,
  type GatewayOptions,
  parseConfig,
} from '../../proxy/index.ts'
import { ownerOfThisProcess } from '../owner.ts'
import { boundEgress } from './bound.ts'
import type { Egress } from './egress.ts'

/** How the gateway inside this process is set up. */
export interface EmbeddedGatewayOptions {
  /**
   * Like a configuration file. Where it says nothing: the ceiling allows all public addresses, state and audit log are in a folder of their own below the
   * runtime root, warnings go to standard error. It has no listeners of its own whatever `listen` says, so there is none.
   */
  readonly config?: Omit<ConfigInput, 'listen' | 'issuers'>
  readonly logger?: GatewayLogger
  readonly machineSets?: GatewayOptions['machineSets']
}

/** Names of the folders below the runtime root. */
export const GATEWAY_FOLDER = /^gw_[a-z0-9]{12}$/
/** In such a folder: who made it. */
export const GATEWAY_OWNER_FILE = 'owner'

/**
 * Starts nothing before the first sandbox needs it. `runtimeRoot` must be there by then.
 * @throws {@link ConfigError} for a configuration that can't be used
 */
export function embeddedEgress(runtimeRoot: string, options: EmbeddedGatewayOptions): Egress {
  const folder = path.join(runtimeRoot, `gw_${randomBytes(6).toString('hex')}`)
  const document: ConfigInput = {
    state: path.join(folder, 'state'),
    ...options.config,
    policy: { ceiling: { kind: 'allow-all' }, ...options.config?.policy },
    log: { level: 'warn', ...options.config?.log },
    listen: { proxy: 'off', admin: 'off' },
  }
  const parsed = parseConfig(document, { folder: process.cwd() })
  if (!parsed.ok) throw new ConfigError(parsed.faults)
  const { config } = parsed

  let starting: Promise<Gateway> | undefined
  const start = async (): Promise<Gateway> => {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    await writeFile(path.join(folder, GATEWAY_OWNER_FILE), ownerOfThisProcess(), { mode: 0o600 })
    const { logger, machineSets } = options
    return createGateway({ config, ...(logger && { logger }), ...(machineSets && { machineSets }) })
  }
  // Tried again after a failure, which the caller may have mended.
  const gateway = (): Promise<Gateway> =>
    (starting ??= start().catch((error: unknown) => {
      starting = undefined
      throw error
    }))

  let closing: Promise<void> | undefined
  return {
    open: async (request) => boundEgress(await gateway()).open(request),
    close: () =>
      (closing ??=
        starting?.then(
          (started) => started.close(),
          () => undefined,
        ) ?? Promise.resolve()),
  }
}
