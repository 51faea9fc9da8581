/** A gateway that sandboxes elsewhere reach over the network, with an issuer of its own, for the checks. */
import { generateKeyPairSync } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import {
  ConfigError,
  type ConfigInput,
  createGateway,
  type GatewayOptions,
  openKeys,
  parseConfig,
} from '../../proxy/index.ts'
import type { RemoteGateway } from '../egress/remote.ts'

/** One that listens. */
export interface ReachableGateway {
  /** What a provider is given. JSON of it is good too. */
  readonly remote: RemoteGateway & { readonly url: string; readonly issuer: string; readonly issuerKey: string }
  /** The same where sandboxes show handles: the gateway signs for itself. */
  readonly forHandles: RemoteGateway & { readonly url: string }
  readonly close: () => Promise<void>
}

/** How it is set up. */
export interface ReachableGatewayOptions extends Pick<GatewayOptions, 'machineSets'> {
  /** What is not about its listeners, its state and its issuer. */
  readonly config: Omit<ConfigInput, 'listen' | 'issuers' | 'state' | 'policy'>
  /** In which its folder is made; the system's for such by default. */
  readonly parentFolder?: string
}

/**
 * Starts it on a free port of `address`, a literal of this host.
 * @throws {@link ConfigError}
 */
export async function startReachableGateway(
  address: string,
  { config, machineSets, parentFolder = os.tmpdir() }: ReachableGatewayOptions,
): Promise<ReachableGateway> {
  // Short, since it holds a socket.
  const folder = await mkdtemp(path.join(parentFolder, 'g-'))
  const host = address.includes(':') ? `[${address}]` : address
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const named = { kid: 'checks-1', alg: 'ES256' }
  await writeFile(
    path.join(folder, 'jwks.json'),
    JSON.stringify({ keys: [{ ...publicKey.export({ format: 'jwk' }), ...named, use: 'sig' }] }),
  )
  const issuer = 'https://checks.sallyport.test'
  const socket = path.join(folder, 'admin.sock')
  const parsed = parseConfig(
    {
      ...config,
      state: 'state',
      listen: { proxy: `${host}:0`, admin: `unix:${socket}` },
      issuers: [
        { issuer, algorithms: ['ES256'], jwks: 'jwks.json' },
        { issuer: 'https://own.sallyport.test', algorithms: ['ES256'], stateKeys: true },
      ],
      policy: { ceiling: { kind: 'allow-all' } },
    },
    { folder },
  )
  if (!parsed.ok) throw new ConfigError(parsed.faults)
  await (await openKeys(parsed.config.state)).rotate()
  const gateway = await createGateway({ config: parsed.config, ...(machineSets && { machineSets }) })
  const [bound] = (await gateway.listen()).proxy
  if (bound?.kind !== 'tcp') throw new Error('the gateway of the checks has no port')
  const reached = { url: `http://${host}:${bound.port}`, control: { admin: `unix:${socket}` } }
  return {
    remote: {
      ...reached,
      issuer,
      issuerKey: JSON.stringify({ ...privateKey.export({ format: 'jwk' }), ...named }),
    },
    forHandles: reached,
    close: async () => {
      await gateway.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
