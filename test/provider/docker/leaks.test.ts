/** The wall of the docker backend against a program that tries every way out, without a network and on one of the sandbox's own. */
import { mkdtempSync, rmSync } from 'node:fs'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { parseAttempts } from '../compile-probe.ts'
import { describeNeeding } from '../needs.ts'
import { createNetwork, type TestNetwork } from '../network.ts'
import { startDaemon, type TestDaemon } from './daemon.ts'
import type { LeakReport } from './leak-driver.ts'
import { compileStaticProbe, INSIDE, NETWORK, serveEverywhere, tryLeaks } from './leaks.ts'

vi.setConfig({ testTimeout: 240_000, hookTimeout: 120_000 })

describeNeeding(['root', 'namespaces', 'docker', 'busybox', 'gcc'], 'the wall of the docker backend', () => {
  let network: TestNetwork
  let daemon: TestDaemon
  let folder: string
  let probe: string
  const run = (mode: 'none' | 'internal', sabotage = false): Promise<LeakReport> =>
    tryLeaks(daemon, {
      backend: 'docker',
      options: { image: 'busybox', network: mode, engine: { socketPath: daemon.socketPath } },
      probe,
      attempts: NETWORK,
      inside: INSIDE,
      sabotage,
    })
  const left = async (): Promise<readonly string[]> => {
    const [containers, networks] = await Promise.all([
      daemon.docker.listContainers({ all: true }),
      daemon.docker.listNetworks(),
    ])
    return [
      ...containers.flatMap(({ Names }) => Names),
      ...networks.map(({ Name }) => Name).filter((name) => name.startsWith('sallyport')),
    ]
  }

  beforeAll(async () => {
    folder = mkdtempSync('/tmp/spl-')
    probe = compileStaticProbe(folder)
    network = await createNetwork()
    daemon = await startDaemon({ within: network.inHost })
    await serveEverywhere(network)
  })

  afterAll(async () => {
    await daemon.close()
    await network.close()
    rmSync(folder, { recursive: true })
  })

  test.each(['none', 'internal'] as const)(
    'with the network `%s` every way is shut inside, of which those outside are open',
    async (mode) => {
      const report = await run(mode)
      if ('fault' in report) throw new Error(report.message)
      const [inside, outside] = [parseAttempts(report.inside), parseAttempts(report.outside)]
      expect([...inside].filter(([, { open }]) => open)).toEqual([])
      // The engine's masquerading keeps the host from asking its own bridge.
      expect([...outside].filter(([attempt, { open }]) => !open && !attempt.startsWith('udp|172.'))).toEqual([])
      expect(outside.size).toBeGreaterThan(10)
      expect(inside.size).toBeGreaterThan(outside.size + 20)
      expect(report.ipv6).toBe('')
      expect(report.faults).toEqual([])
      expect(report.proxied).toContain('host_not_allowed')
      expect(report.asked.filter((name) => name.includes('leaked'))).toEqual([])
      expect(await left()).toEqual([])
    },
  )

  test('a network on which the host answers all the same is found out from inside, and nothing starts', async () => {
    const report = await run('internal', true)
    expect(report).toMatchObject({
      fault: 'network_unsafe',
      message: expect.stringMatching(/not closed: from inside these answer: \S+:\d+/) as string,
    })
    expect(await left()).toEqual([])
  })
})
