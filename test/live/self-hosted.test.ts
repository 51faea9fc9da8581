/**
 * The whole suite on a real machine with KVM: booted, gone on from a snapshot out of a pool, and with a network. Run as root, with
 * `SALLYPORT_LIVE_FIRECRACKER` and `SALLYPORT_LIVE_JAILER` naming the programs, and `SALLYPORT_MICROVM_IMAGES` what deploy/microvm built (built when absent).
 */
import fs from 'node:fs'
import path from 'node:path'
import { describe } from 'vitest'
import { makeSnapshot } from '../../provider/backends/microvm/make-snapshot.ts'
import type { SelfHostedBackendConfig } from '../../provider/index.ts'
import { compileProbe } from '../provider/compile-probe.ts'
import { type OwnSubject, runConformance } from '../provider/conformance/run-conformance.ts'
import { microvmImages } from '../provider/microvm/images.ts'
import { traces } from '../provider/microvm/traces.ts'

const { SALLYPORT_LIVE_FIRECRACKER: firecrackerBinary, SALLYPORT_LIVE_JAILER: jailerBinary } = process.env

async function subject(more: Partial<SelfHostedBackendConfig>, snapshots: boolean): Promise<OwnSubject> {
  const images = microvmImages()
  // Beside the jails, so that images are linked and not copied.
  const folder = fs.mkdtempSync('/srv/spl-')
  const base: SelfHostedBackendConfig = {
    tier: 'microvm',
    service: 'self-hosted',
    firecrackerBinary: firecrackerBinary ?? '',
    jailerBinary: jailerBinary ?? '',
    chrootBaseDir: path.join(folder, 'jail'),
    ...images.config,
    ...more,
  }
  fs.mkdirSync(base.chrootBaseDir ?? '')
  const snapshot = path.join(folder, 'snapshot')
  if (snapshots) {
    const { tier: _tier, service: _service, snapshot: _snapshot, pool: _pool, ...options } = base
    await makeSnapshot({ ...options, runtimeRoot: path.join(folder, 'r') }, snapshot)
  }
  return {
    config: snapshots ? { ...base, snapshot } : base,
    node: ['/usr/bin/node'],
    probe: compileProbe(folder, ['-static']),
    leftovers: (id) =>
      Promise.resolve([...traces(id), ...fs.globSync(path.join(folder, `jail/*/${id.replace('_', '-')}`))]),
    done: () => {
      images.remove()
      fs.rmSync(folder, { recursive: true })
      return Promise.resolve()
    },
  }
}

if (firecrackerBinary === undefined || jailerBinary === undefined) {
  const reason = 'SALLYPORT_LIVE_FIRECRACKER and SALLYPORT_LIVE_JAILER name no programs'
  console.log(`skipped: Firecracker on a machine with KVM: ${reason}`)
  describe.skip(`Firecracker on a machine with KVM (${reason})`, () => runConformance(() => subject({}, false)))
} else {
  describe('Firecracker, booted', () => runConformance(() => subject({}, false)))
  describe('Firecracker, from a snapshot and a pool', () => runConformance(() => subject({ pool: { size: 2 } }, true)))
  describe('Firecracker with a network', () => runConformance(() => subject({ network: 'tap' }, false)))
}
