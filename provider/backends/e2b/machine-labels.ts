/** Labels of a machine, as E2B's metadata: by them another process finds what it did not make. Nothing in them is secret. */
import type { SandboxInfo } from '../../sandbox.ts'
import { isSandboxId } from '../../runtime-folder.ts'
import type { ListedMachine } from './e2b-api.ts'
import type { E2bEgress } from './e2b-options.ts'
import type { GatewayPlace } from './gateway-address.ts'

const ID = 'sallyport-sandbox'
const GATEWAY = 'sallyport-gateway'
const EGRESS = 'sallyport-egress'
const CREATED = 'sallyport-created'
const EXPIRES = 'sallyport-expires'
/** Before the caller's own, so that no two are the same. */
const LABEL = 'label-'
const OWNED = { 'sallyport-managed': 'yes' }

/** What finds every machine of ours. */
export const ALL: Readonly<Record<string, string>> = OWNED

/** What finds one. */
export function labelsOfOne(id: string): Readonly<Record<string, string>> {
  return { ...OWNED, [ID]: id }
}

/** All that a machine is given. */
export function machineLabels(
  { id, labels, timeoutMs }: { readonly id: string; readonly labels: Readonly<Record<string, string>>; readonly timeoutMs?: number | undefined }, // prettier-ignore
  gateway: GatewayPlace,
  egress: E2bEgress,
): Record<string, string> {
  const createdAtMs = Date.now()
  return {
    ...labelsOfOne(id),
    [GATEWAY]: `${gateway.protocol}//${gateway.name}:${gateway.port}/${gateway.address}`,
    [EGRESS]: egress,
    [CREATED]: String(createdAtMs),
    ...(timeoutMs !== undefined && { [EXPIRES]: String(createdAtMs + timeoutMs) }),
    ...Object.fromEntries(Object.entries(labels).map(([name, value]) => [`${LABEL}${name}`, value])),
  }
}

/** Undefined for a machine that is not as ours are, whatever it says. */
export function infoOf({ metadata, startedAtMs }: ListedMachine): SandboxInfo | undefined {
  const id = metadata[ID]
  if (id === undefined || !isSandboxId(id)) return undefined
  const expiresAtMs = wholeNumber(metadata[EXPIRES])
  return {
    id,
    createdAtMs: wholeNumber(metadata[CREATED]) ?? startedAtMs,
    ...(expiresAtMs !== undefined && { expiresAtMs }),
    labels: Object.fromEntries(
      Object.entries(metadata).flatMap(([name, value]) =>
        name.startsWith(LABEL) ? [[name.slice(LABEL.length), value]] : [],
      ),
    ),
  }
}

/** Undefined where it can't be read. */
export function gatewayOf({ metadata }: ListedMachine): GatewayPlace | undefined {
  const [, protocol, name, port, address] = /^(https?:)\/\/([A-Za-z0-9.-]+):(\d{1,5})\/([\d.]+)$/.exec(metadata[GATEWAY] ?? '') ?? [] // prettier-ignore
  if (name === undefined || address === undefined) return undefined
  return { protocol: protocol === 'https:' ? 'https:' : 'http:', name, address, port: Number(port) }
}

/** How it was held to the gateway when it was made. */
export function egressOf({ metadata }: ListedMachine): string {
  return metadata[EGRESS] ?? 'gateway-address'
}

function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined
}
