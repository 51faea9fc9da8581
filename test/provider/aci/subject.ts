/** A backend over the server that stands for Azure, and what a provider would do with it. */
import { randomInt } from 'node:crypto'
import { inspect } from 'node:util'
import http from 'node:http'
import { once } from 'node:events'
import { createAciStandbyPoolBackend } from '../../../provider/backends/aci-standby-pool.ts'
import type { AciStandbyPoolOptions } from '../../../provider/backends/aci/aci-options.ts'
import type { Backend, StartedSandbox, StartRequest } from '../../../provider/backend.ts'
import type { EgressGrant } from '../../../provider/egress/egress.ts'
import { newSandboxId } from '../../../provider/runtime-folder.ts'
import { type ArmServer, type ArmSettings, CONTAINER, POOL, PROFILE, RESOURCE_GROUP, startArmServer, SUBSCRIPTION } from './arm-server.ts' // prettier-ignore
import type { Machine, MachineOptions } from './machine.ts'
import { PROTOCOL } from '../../../provider/worker/wire.ts'

/** What no error, log, record, listing or reply may show. */
export const MARKER = 'marker-arm-credential-3b1f9c'
export const WORKER_BEARER = 'marker-worker-bearer-8c2e77aa01f3c6e2d4b0'
export const SECRET_VARIABLE = 'marker-callers-variable-55aa'

export const GRANT: EgressGrant = {
  gateway: new URL('http://198.19.0.9:3128'),
  ca: undefined,
  token: () => Promise.reject(new Error('nobody asks here')),
  begin: () => Promise.resolve(),
  setPolicy: () => Promise.resolve(),
  close: () => Promise.resolve(),
}

export interface Subject {
  readonly azure: ArmServer
  readonly backend: Backend
  readonly options: AciStandbyPoolOptions
  readonly undone: { readonly step: string; readonly action: () => Promise<void> }[]
  /** As `create()` would. A failure undoes nothing by itself. */
  readonly start: (more?: Partial<StartRequest>) => Promise<StartedSandbox>
  readonly close: () => Promise<void>
}

/** Without machines unless they are asked for. */
export async function openSubject(
  settings: Partial<ArmSettings> = {},
  more: Partial<AciStandbyPoolOptions> = {},
): Promise<Subject> {
  const azure = await startArmServer({
    machine: standIn(),
    isKnown: (token) => token === MARKER,
    takesMs: 5,
    ...settings,
  })
  const options: AciStandbyPoolOptions = {
    subscriptionId: SUBSCRIPTION,
    resourceGroup: RESOURCE_GROUP,
    location: 'westeurope',
    pool: { name: POOL, profile: PROFILE, container: CONTAINER },
    armEndpoint: azure.url,
    getArmToken: () => Promise.resolve(MARKER),
    pollMs: 10,
    workerPort: 20_000 + randomInt(10_000),
    workerTimeoutMs: 20_000,
    ...more,
  }
  const backend = createAciStandbyPoolBackend(options)
  const undone: Subject['undone'] = []
  return {
    azure,
    backend,
    options,
    undone,
    start: (request = {}) =>
      backend.start({
        id: newSandboxId(),
        runtimeFolder: '/nonexistent',
        workerToken: WORKER_BEARER,
        env: { CALLERS: SECRET_VARIABLE },
        labels: { owner: 'host-1', 'created-at': new Date().toISOString() },
        undo: (step, action) => undone.unshift({ step, action }),
        grant: GRANT,
        ...request,
      }),
    close: async () => {
      await backend.close?.()
      await azure.close()
    },
  }
}

/** What stands for a worker where the port of a machine is not needed: answers on its port of a loopback address of its own. */
export function standIn(
  kind: 'worker' | 'other-version' | 'stranger' | 'nobody' | 'ends' = 'worker',
): (options: MachineOptions) => Promise<Machine> {
  return async ({ settings }) => {
    const { token, listen } = JSON.parse(settings) as {
      readonly token: string
      readonly listen: { readonly port: number }
    }
    let bearer = token
    const server = http.createServer((request, response) => {
      const reply = (status: number, body?: object): void => void response.writeHead(status, { 'content-type': 'application/json', connection: 'close' }).end(body === undefined ? '' : JSON.stringify(body)) // prettier-ignore
      if (kind === 'stranger') {
        response.writeHead(200, { 'content-type': 'text/html' }).end('<html>Welcome to nginx!</html>')
        return
      }
      if (request.headers.authorization !== `Bearer ${bearer}`) {
        reply(401, { error: { code: 'unauthorized', error: 'the bearer is missing or wrong' } })
        return
      }
      if (request.url === '/healthz') {
        reply(200, { status: 'ok', protocol: kind === 'other-version' ? PROTOCOL + 1 : PROTOCOL, pid: 1, node: 'v24.0.0', rootDir: '/workspace', running: 0, uptimeMs: 5 }) // prettier-ignore
        return
      }
      let text = ''
      request.on('data', (piece: Buffer) => (text += piece.toString()))
      request.on('end', () => {
        bearer = (JSON.parse(text) as { readonly token?: string }).token ?? bearer
        reply(204)
      })
    })
    // An address of its own, since the port is always the same.
    const address = `127.${randomInt(20, 220)}.${randomInt(250)}.${randomInt(1, 250)}`
    if (kind === 'nobody' || kind === 'ends') server.close()
    else {
      server.listen(listen.port, address)
      await once(server, 'listening')
    }
    let hasEnded = kind === 'ends'
    return {
      address,
      exec: () => Promise.reject(new Error('there is no inside')),
      exitCode: () => 66,
      hasEnded: () => hasEnded,
      stop: async () => {
        hasEnded = true
        server.closeAllConnections()
        if (server.listening) await new Promise((resolve) => server.close(resolve))
      },
    }
  }
}

/** The error, once it is seen that nothing in it shows a secret. */
export async function faultOf(
  promise: Promise<unknown>,
): Promise<Error & { readonly fault?: string; readonly code?: string; readonly outcome?: string }> {
  const error: unknown = await promise.then(
    () => undefined,
    (fault: unknown) => fault,
  )
  if (!(error instanceof Error)) throw new Error('nothing was thrown')
  mustHide(`${inspect(error, { depth: 12, showHidden: true })} ${JSON.stringify(error)}`)
  return error
}

export function mustHide(text: string): void {
  for (const secret of [MARKER, WORKER_BEARER, SECRET_VARIABLE])
    for (const spelling of [secret, Buffer.from(secret).toString('base64').replace(/=+$/, '')])
      if (text.includes(spelling)) throw new Error(`a secret is shown: ${secret.slice(0, 14)}…`)
}
