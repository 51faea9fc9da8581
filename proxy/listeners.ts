/** Opens what `listen` says, keeps certificates current, and knows the gateway's own addresses. */
import fs from 'node:fs'
import os from 'node:os'
import { type IpAddress, type OwnListener, parseAddress } from '../policies/index.ts'
import { SallyportError } from '../policies/error.ts'
import type { Config } from './config/schema.ts'
import { type ListenCommon, type Listener, listenTcp, listenUnix, type TlsMaterial } from './relay/listen.ts'
import { whyUnreadable } from './unreadable.ts'

/** Where a listener can be reached. */
export type ListeningAddress =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

type TlsFiles = Pick<NonNullable<Config['listen']['tls']>, 'cert' | 'key' | 'clientCa'> & {
  readonly clientCertificate?: 'optional' | 'required'
}

/** Several `SO_REUSEPORT` listeners share a port, so that a busy event loop accepts more than one connection a turn. */
const LISTENERS_PER_PORT = 8
const CERTIFICATE_POLL_MS = 2000
/** What listens on every address, in canonical form. */
const WILDCARDS: ReadonlySet<string> = new Set(['0.0.0.0', '::', '::ffff:0.0.0.0'])

/**
 * Opens one address. `isShared`: other processes of the same gateway have it too.
 * @throws SallyportError `SALLYPORT_LISTEN_FAILED`, `SALLYPORT_KEY_UNREADABLE`
 */
export async function openListener(
  address: ListeningAddress,
  common: ListenCommon,
  { tls, isShared }: { readonly tls?: TlsFiles | undefined; readonly isShared?: boolean | undefined } = {},
): Promise<{ readonly listener: Listener; readonly address: ListeningAddress }> {
  if (address.kind === 'unix') return { listener: await listenUnix({ path: address.path, ...common }), address }
  const { host, port } = address
  const listener = await listenTcp({
    host,
    port,
    listeners: LISTENERS_PER_PORT,
    ...(isShared && { isShared }),
    ...(tls && { tls: readTlsMaterial(tls) }),
    ...common,
  })
  return { listener, address: { kind: 'tcp', host, port: listener.port } }
}

/**
 * Reads the certificate files again when one of them changes. A fault keeps the old certificates and is told to `onReload`.
 * Returns what stops the watching.
 */
export function watchCertificates(
  tls: TlsFiles,
  listeners: readonly Pick<Listener, 'reload'>[],
  onReload: (outcome: { readonly ok: true } | { readonly ok: false; readonly error: unknown }) => void,
): () => void {
  const files = [tls.cert, tls.key, tls.clientCa].filter((file) => file !== undefined)
  const reload = () => {
    try {
      const material = readTlsMaterial(tls)
      for (const listener of listeners) listener.reload(material)
      onReload({ ok: true })
    } catch (error) {
      onReload({ ok: false, error })
    }
  }
  for (const file of files) fs.watchFile(file, { interval: CERTIFICATE_POLL_MS, persistent: false }, reload)
  return () => {
    for (const file of files) fs.unwatchFile(file, reload)
  }
}

/** Every address that the configuration listens on. */
export function configuredAddresses({ listen }: Config): readonly ListeningAddress[] {
  const { proxy, bound, admin } = listen
  return [...proxy, ...bound.map(({ address }) => address), ...(admin === undefined ? [] : [admin])]
}

/** The gateway's listeners as the policy sees them: never reachable through it, also by an address that the machine gets later. */
export function ownListeners(addresses: readonly ListeningAddress[]): readonly OwnListener[] {
  return addresses.flatMap((address) => {
    if (address.kind === 'unix') return []
    const bound = parseAddress(address.host)
    const isWildcard = !bound.ok || WILDCARDS.has(bound.value.text)
    return [
      {
        addresses: isWildcard ? ('any' as const) : [bound.value],
        get localAddresses() {
          return machineAddresses()
        },
        port: address.port,
      },
    ]
  })
}

function machineAddresses(): readonly IpAddress[] {
  return Object.values(os.networkInterfaces())
    .flatMap((entries) => entries ?? [])
    .flatMap(({ address }) => {
      const parsed = parseAddress(address.replace(/%.*$/, ''))
      return parsed.ok ? [parsed.value] : []
    })
}

/** @throws SallyportError `SALLYPORT_KEY_UNREADABLE` */
export function readTlsMaterial(tls: TlsFiles): TlsMaterial {
  return {
    cert: readPem(tls.cert),
    key: readPem(tls.key),
    ...(tls.clientCa !== undefined && {
      clientCa: readPem(tls.clientCa),
      clientCertificate: tls.clientCertificate === 'required' ? ('require' as const) : ('request' as const),
    }),
  }
}

function readPem(file: string): Buffer {
  try {
    return fs.readFileSync(file)
  } catch (error) {
    throw new SallyportError('SALLYPORT_KEY_UNREADABLE', `can't read \`${file}\`: ${whyUnreadable(error)}`, {
      cause: error,
    })
  }
}
