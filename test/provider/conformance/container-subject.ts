/** A container backend as the subject of the suite, on an engine of the test's own. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { openToolbox } from '../../../provider/backends/container-toolbox.ts'
import { compileProbe } from '../compile-probe.ts'
import { startDaemon } from '../docker/daemon.ts'
import type { OwnSubject } from './run-conformance.ts'

/** What the engine still has of a sandbox counts as left over. `engine` as in {@link startDaemon}. */
export async function containerSubject(
  config: { readonly runtime: 'docker' | 'runsc'; readonly network?: 'none' | 'internal' },
  engine: Parameters<typeof startDaemon>[0] = {},
): Promise<OwnSubject> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
  const daemon = await startDaemon(engine)
  const { command } = await openToolbox(undefined)
  return {
    config: { tier: 'container', image: 'busybox', engine: { socketPath: daemon.socketPath }, ...config },
    node: command,
    probe: compileProbe(folder, ['-static']),
    leftovers: async (id) => {
      const [containers, networks] = await Promise.all([
        daemon.docker.listContainers({ all: true }),
        daemon.docker.listNetworks(),
      ])
      return [
        ...containers
          .filter((each) => JSON.stringify(each).includes(id))
          .map(({ Names }) => `container ${Names.join(' ')}`),
        ...networks.filter((each) => JSON.stringify(each).includes(id)).map(({ Name }) => `network ${Name}`),
      ]
    },
    done: async () => {
      await daemon.close()
      fs.rmSync(folder, { recursive: true })
    },
  }
}
