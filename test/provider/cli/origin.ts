/** An origin on loopback, and a configuration with which a run reaches it by name through its gateway. */
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface Surrounds {
  readonly port: number
  /** Where commands start. */
  readonly folder: string
  /** What the binary needs to know: a runtime root of its own. */
  readonly environment: Readonly<Record<string, string>>
  readonly runtimeRoot: string
  /** `--config` for it. */
  readonly config: string
  /** Requests that reached the origin. */
  readonly requests: () => number
  readonly close: () => void
}

/** Names `open.test` and `other.test` lead to the origin, which says `hello from NAME`. */
export async function openSurrounds(): Promise<Surrounds> {
  let requests = 0
  const server = http.createServer((request, response) => {
    requests++
    response.end(`hello from ${(request.headers.host ?? '').replace(/:\d+$/, '')}\n`)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo

  const root = mkdtempSync(join(tmpdir(), 'sp-run-'))
  const folder = join(root, 'project')
  mkdirSync(folder)
  mkdirSync(join(root, 'run'), { mode: 0o700 })
  const config = join(root, 'run.yaml')
  writeFileSync(
    config,
    'network: { allowPrivate: [127.0.0.1], hosts: { open.test: 127.0.0.1, other.test: 127.0.0.1 } }\n',
  )
  return {
    port,
    folder,
    config,
    environment: { XDG_RUNTIME_DIR: join(root, 'run') },
    runtimeRoot: join(root, 'run', 'sallyport'),
    requests: () => requests,
    close: () => {
      server.close()
      server.closeAllConnections()
      rmSync(root, { recursive: true, force: true })
    },
  }
}
