/** The way of a sandbox elsewhere to its gateway: what is carried there, under the token that this worker was told last. */
import { Fault } from './fault.ts'
import type { WorkerGateway } from './settings.ts'

/** A way that is open. */
export interface GatewayWay {
  /** Takes the place of the token. `cutTunnels`: what is open was under another policy, and ends. */
  readonly setToken: (token: string, cutTunnels: boolean) => void
  readonly close: () => Promise<void>
}

const MAX_TOKEN_LENGTH = 16 * 1024

/** Resolves when it listens. */
export async function openGatewayWay({ host, port, url, ca, token }: WorkerGateway): Promise<GatewayWay> {
  // What most workers never need is loaded here alone.
  const { startTokenRelay } = await import('./token-relay.ts')
  let current = token
  const relay = await startTokenRelay({
    gateway: new URL(url),
    ca,
    listen: { host, port },
    token: () => (current === undefined ? Promise.reject(new Error('no token yet')) : Promise.resolve(current)),
  })
  return {
    setToken: (next, cutTunnels) => {
      current = next
      if (cutTunnels) relay.cut()
    },
    close: relay.close,
  }
}

/** Undefined when it is absent. @throws Fault `bad_request`, without the text */
export function parseGatewayToken(value: unknown): string | undefined {
  if (value === undefined) return undefined
  if (typeof value === 'string' && value.length <= MAX_TOKEN_LENGTH && /^[\x21-\x7e]+$/.test(value)) return value
  throw new Fault('bad_request', `the token for the gateway is not 1 to ${MAX_TOKEN_LENGTH} visible ASCII characters`)
}
