/** A machine whose host was killed: what it can still do, who goes on with it, and what ends it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { createSandboxProvider, type Sandbox, type SandboxProvider } from '../../../provider/index.ts'
import { INSIDE } from '../../../provider/backends/inside.ts'
import { describeNeeding } from '../needs.ts'
import { makeStubs, type Stubs } from './stubs.ts'
import { traces } from './traces.ts'

vi.setConfig({ testTimeout: 120_000 })

/** What a plain request through the gateway comes to, inside. */
const ASK = `const proxy = new URL(process.env.http_proxy)
require('node:http').get({ host: proxy.hostname, port: proxy.port, path: process.argv[1] }, (response) => { response.resume(); console.log(response.statusCode) })
  .on('error', (error) => console.log(error.code))`

describeNeeding(['root', 'bubblewrap'], 'a machine whose host was killed', () => {
  let stubs: Stubs
  let runtimeRoot: string
  let origin: http.Server
  beforeAll(async () => {
    stubs = makeStubs()
    runtimeRoot = path.join(stubs.folder, 'r')
    origin = http.createServer((_request, response) => response.end('origin')).listen(0, '127.0.0.1')
    await once(origin, 'listening')
  })
  afterAll(async () => {
    origin.close()
    await stubs.remove()
  })

  const abandoned = async (): Promise<string> => {
    const program = path.join(import.meta.dirname, '../conformance/abandon.ts')
    const child = spawn(process.execPath, [program, JSON.stringify({ config: stubs.config, runtimeRoot })], { stdio: ['ignore', 'pipe', 'inherit'] }) // prettier-ignore
    const [line] = (await once(child.stdout, 'data')) as [Buffer]
    child.kill('SIGKILL')
    await once(child, 'exit')
    return line.toString().trim()
  }
  const provider = (): SandboxProvider =>
    createSandboxProvider({
      backend: stubs.config,
      runtimeRoot,
      gateway: {
        machineSets: { sets: { npm: [], apt: [] }, notes: [] },
        config: { log: { level: 'silent' }, network: { allowPrivate: ['127.0.0.0/8'] } },
      },
    })
  const ask = async (sandbox: Sandbox): Promise<string> => {
    const { port } = origin.address() as AddressInfo
    return (await sandbox.exec(INSIDE.node, ['-e', ASK, `http://127.0.0.1:${port}/`])).stdout.trim()
  }

  test('goes on with whoever attaches, its way out too; and ends with that', async () => {
    const id = await abandoned()
    await using other = provider()
    const sandbox = await other.attach(id)
    expect(await ask(sandbox)).toBe('200')
    await sandbox.setEgress({ kind: 'deny-all' })
    expect(await ask(sandbox)).toBe('403')
    await sandbox.destroy()
    expect(traces(id)).toEqual([])
    expect(fs.existsSync(stubs.jail(id))).toBe(false)
  })

  test('has no way out while nobody holds it', async () => {
    const id = await abandoned()
    // Past the provider: nobody takes anything over by looking.
    expect(fs.existsSync(path.join(stubs.jail(id), 'root/v.sock_3128'))).toBe(true)
    const refused = await new Promise<string | undefined>((resolve) => {
      http.get({ socketPath: path.join(stubs.jail(id), 'root/v.sock_3128'), path: 'http://127.0.0.1/' }, () => resolve('answered')).on('error', (error: NodeJS.ErrnoException) => resolve(error.code)) // prettier-ignore
    })
    expect(refused).toBe('ECONNREFUSED')
    await using other = provider()
    expect(await other.reap({ olderThanMs: 3_600_000 })).toEqual([id])
    expect(traces(id)).toEqual([])
    expect(fs.existsSync(stubs.jail(id))).toBe(false)
    expect(fs.readdirSync(runtimeRoot)).not.toContain(id)
  })
})
