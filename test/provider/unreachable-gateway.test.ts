/** A sandbox whose gateway can't be reached is not handed out: its first command would be the one that finds out. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { startReachableGateway } from '../../provider/conformance/reachable-gateway.ts'
import { createSandboxProvider } from '../../provider/index.ts'

test('create fails, says so and leaves nothing', async () => {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'sp-'))
  const gateway = await startReachableGateway('127.0.0.1', {
    config: { log: { level: 'silent' } },
    machineSets: { sets: { npm: [], apt: [] }, notes: [] },
  })
  const backend = { tier: 'passthrough' } as const
  const defaultEgress = { kind: 'allow-all' } as const
  const provider = (url: string) =>
    createSandboxProvider({ backend, defaultEgress, runtimeRoot: root, gateway: { ...gateway.remote, url } })
  // Nobody listens there.
  const lost = provider('http://127.0.0.1:1')
  const found = provider(gateway.remote.url)
  try {
    await expect(lost.create()).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_CREATE_FAILED',
      message: 'the gateway does not serve the sandbox: 502 connect_refused',
    })
    expect(await lost.list()).toEqual([])
    expect((await (await found.create()).exec('true')).exitCode).toBe(0)
  } finally {
    await Promise.all([lost, found].map((each) => each[Symbol.asyncDispose]()))
    await gateway.close()
    fs.rmSync(root, { recursive: true, force: true })
  }
})
