/** What the platform is told when a further handle comes: all of its network anew, once, and again where it is not known whether it heard. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { StartedSandbox } from '../../../provider/backend.ts'
import { createE2bBackend } from '../../../provider/backends/e2b.ts'
import type { EgressGrant } from '../../../provider/egress/egress.ts'
import { MARKER_KEY } from './bench.ts'
import { type E2bServer, startE2bServer } from './contract-server.ts'
import { bootHere } from './machines.ts'

const NETWORK = 'PUT /sandboxes/{id}/network'
const handle = (letter: string): string => `sph_${letter.repeat(32)}`

let server: E2bServer
let started: StartedSandbox
beforeAll(async () => {
  server = await startE2bServer({ apiKey: MARKER_KEY, boot: bootHere, internalProxies: true })
  const backend = createE2bBackend({ apiKey: MARKER_KEY, apiUrl: server.apiUrl, sandboxUrl: server.sandboxUrl, egress: 'socks5-proxy', unsafeTokenInClear: true, unsafePrivateGateway: true }) // prettier-ignore
  const nothing = (): Promise<void> => Promise.resolve()
  const grant: EgressGrant = { gateway: new URL('http://127.0.0.1:3128'), ca: undefined, token: () => Promise.resolve(handle('A')), begin: nothing, setPolicy: nothing, close: nothing } // prettier-ignore
  started = await backend.start({ id: 'sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa', grant, runtimeFolder: '/nowhere', workerToken: 'x', env: {}, labels: {}, undo: () => undefined }) // prettier-ignore
}, 60_000)
afterAll(async () => {
  await started.stop()
  await server.close()
  expect(server.faults).toEqual([])
}, 60_000)

const network = () => server.running()[0]?.network
const updates = () => server.calls.filter(({ method, path }) => method === 'PUT' && path.endsWith('/network')).length
const expected = (letter: string) => ({
  allowOut: ['*'],
  denyOut: ['0.0.0.0/0'],
  egressProxy: { address: '127.0.0.1:3128', username: 'sandbox', password: handle(letter) },
})

test('the one that it was made with is told once', async () => {
  expect(network()).toEqual({ ...expected('A'), allowPublicTraffic: false })
  await started.takeToken?.(handle('A'), 'renewal')
  expect(updates()).toBe(0)
})

test('a further one takes its place with all the rest, since what is left out is cleared', async () => {
  await started.takeToken?.(handle('B'), 'renewal')
  expect([updates(), network()]).toEqual([1, expected('B')])
})

test('one that the platform did not take is told again, and so is the one before', async () => {
  server.misbehave(NETWORK, (_request, response) => void response.writeHead(400, { 'content-type': 'application/json' }).end('{"code":400,"message":"no"}')) // prettier-ignore
  const refusal: unknown = await started.takeToken?.(handle('C'), 'renewal').catch((error: unknown) => error)
  expect(refusal).toMatchObject({ fault: 'request_refused' })
  expect(String((refusal as Error).stack)).not.toContain('sph_')
  server.misbehave(NETWORK, undefined)
  expect(network()).toEqual(expected('B'))
  await started.takeToken?.(handle('B'), 'renewal')
  expect(updates()).toBe(3)
  await started.takeToken?.(handle('C'), 'policy')
  expect(network()).toEqual(expected('C'))
})

test('a machine that is gone needs none', async () => {
  await started.stop()
  await started.takeToken?.(handle('D'), 'renewal')
  expect(server.running()).toEqual([])
})
