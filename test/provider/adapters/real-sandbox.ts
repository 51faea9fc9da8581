/** A sandbox of the process backend, with an origin on loopback behind its gateway: `open.test` is allowed, `other.test` is not. */
import { once } from 'node:events'
import fs from 'node:fs'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { expect } from 'vitest'
import { createSandboxProvider, type Sandbox, type SandboxProvider } from '../../../provider/index.ts'

export interface RealSandbox {
  readonly provider: SandboxProvider
  readonly sandbox: Sandbox
  /** Of the origin. */
  readonly port: number
  readonly close: () => Promise<void>
}

export async function openRealSandbox(): Promise<RealSandbox> {
  const server = http.createServer((_request, response) => response.end('hello from the origin\n'))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const runtimeRoot = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  const provider = createSandboxProvider({
    backend: { tier: 'process' },
    runtimeRoot,
    defaultEgress: { kind: 'static', allowedHosts: [`open.test:${port}`] },
    gateway: {
      machineSets: { sets: { npm: [], apt: [] }, notes: [] },
      config: {
        network: { allowPrivate: ['127.0.0.1'], hosts: { 'open.test': '127.0.0.1', 'other.test': '127.0.0.1' } },
      },
    },
  })
  const close = async (): Promise<void> => {
    await provider[Symbol.asyncDispose]()
    server.close()
    server.closeAllConnections()
    fs.rmSync(runtimeRoot, { recursive: true, force: true })
  }
  try {
    return { provider, sandbox: await provider.create(), port, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** A command that goes on until it is killed, and writes down its process id. */
export const ENDLESS = 'echo $$ > pid; sleep 600'

/** Waits until {@link ENDLESS} runs. */
export async function untilItRuns(sandbox: Sandbox): Promise<void> {
  await expect
    .poll(async () => (await sandbox.exec('test -s pid && kill -0 "$(cat pid)"')).exitCode, { timeout: 20_000 })
    .toBe(0)
}

/** Waits until {@link ENDLESS} is gone. */
export async function untilItIsGone(sandbox: Sandbox): Promise<void> {
  await expect.poll(async () => (await sandbox.exec('kill -0 "$(cat pid)"')).exitCode, { timeout: 20_000 }).not.toBe(0)
  await sandbox.remove('pid')
}
