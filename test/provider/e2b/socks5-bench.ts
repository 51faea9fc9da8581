/** A provider for E2B by its SOCKS5 proxy, on what stands for its platform, with machines that are guests of this host and a gateway of the test's own. */
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { createSandboxProvider, type E2bBackendConfig, type RemoteGateway, type SandboxProvider, type SandboxProviderOptions } from '../../../provider/index.ts' // prettier-ignore
import { openHostAddress } from '../elsewhere/guest.ts'
import { MARKER_KEY } from './bench.ts'
import { type E2bServer, type E2bServerOptions, startE2bServer } from './contract-server.ts'
import { bootGuest } from './machines.ts'
import { ALLOWED, type OwnGateway, startOwnGateway } from './own-gateway.ts'

export interface Socks5Bench {
  readonly server: E2bServer
  readonly gateway: OwnGateway
  readonly runtimeRoot: string
  readonly address: string
  readonly provider: (config?: Partial<E2bBackendConfig>, gateway?: RemoteGateway) => SandboxProvider
  /** What it is made with. JSON of it is good too. */
  readonly options: SandboxProviderOptions
  /** Every handle that the platform was ever given. */
  readonly handles: () => readonly string[]
  /** What the gateway says to whoever shows it over SOCKS5, and asks for the host that is let out: a reply code, or that it is not taken. */
  readonly tryHandle: (handle: string) => Promise<number | 'not taken'>
  readonly close: () => Promise<void>
}

/** As `allowedHosts` of the tests. */
export const LETS_OUT = { kind: 'static', allowedHosts: [ALLOWED] } as const

/** Takes root: its machines are guests. */
export async function openSocks5Bench(options: Partial<E2bServerOptions> = {}): Promise<Socks5Bench> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sp2-'))
  const runtimeRoot = path.join(folder, 'r')
  const host = await openHostAddress(4)
  const server = await startE2bServer({ apiKey: MARKER_KEY, boot: bootGuest, ...options })
  const gateway = await startOwnGateway(host.address)
  const providers: SandboxProvider[] = []
  const backend = { tier: 'microvm', service: 'e2b', apiKey: MARKER_KEY, apiUrl: server.apiUrl, sandboxUrl: server.sandboxUrl, egress: 'socks5-proxy', unsafeTokenInClear: true, unsafePrivateGateway: true } as const // prettier-ignore
  const made = { backend, gateway: gateway.remote, defaultEgress: LETS_OUT, runtimeRoot }
  return {
    server,
    gateway,
    runtimeRoot,
    address: host.address,
    provider: (config = {}, remote = gateway.remote) => {
      const provider = createSandboxProvider({ ...made, backend: { ...backend, ...config }, gateway: remote })
      providers.push(provider)
      return provider
    },
    options: made,
    handles: () => [...new Set(JSON.stringify(server.calls.map(({ body }) => body)).match(/sph_[\w-]{32}/g) ?? [])],
    tryHandle: (handle) => askSocks(host.address, gateway.port, handle),
    close: async () => {
      const outcomes = await Promise.allSettled(providers.map((provider) => provider[Symbol.asyncDispose]()))
      await server.close()
      await gateway.close()
      await host.close()
      fs.rmSync(folder, { recursive: true, force: true })
      for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason
    },
  }
}

/** RFC 1928, RFC 1929: to port 80 of the host that is let out. */
async function askSocks(host: string, port: number, password: string): Promise<number | 'not taken'> {
  const socket = net.connect(port, host)
  let got = Buffer.alloc(0)
  let isClosed = false
  const changed = new EventTarget()
  const tell = (): void => void changed.dispatchEvent(new Event('change'))
  socket.on('data', (piece: Buffer) => {
    got = Buffer.concat([got, piece])
    tell()
  })
  socket.on('error', () => undefined)
  socket.on('close', () => {
    isClosed = true
    tell()
  })
  const read = async (count: number): Promise<Buffer> => {
    while (got.length < count) {
      if (isClosed) throw new Error('the gateway closed before it answered')
      await new Promise((resolve) => changed.addEventListener('change', resolve, { once: true }))
    }
    const piece = got.subarray(0, count)
    got = got.subarray(count)
    return piece
  }
  try {
    socket.write(Buffer.from([5, 1, 2]))
    await read(2)
    socket.write(Buffer.concat([Buffer.from([1, 1, 120, password.length]), Buffer.from(password)]))
    if ((await read(2))[1] !== 0) return 'not taken'
    socket.write(Buffer.concat([Buffer.from([5, 1, 0, 3, ALLOWED.length]), Buffer.from(ALLOWED), Buffer.from([0, 80])]))
    return (await read(10))[1] ?? -1
  } finally {
    socket.destroy()
  }
}
