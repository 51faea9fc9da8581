/** Machines of QEMU as the subject of the conformance suite. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { compileProbe } from '../compile-probe.ts'
import type { OwnSubject } from '../conformance/run-conformance.ts'
import { microvmImages } from './images.ts'
import { traces } from './traces.ts'

/** Emulated guests on a busy machine take their time. */
export const PATIENCE_MS = 300_000

export function qemuSubject(): OwnSubject {
  const images = microvmImages()
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spp-'))
  return {
    config: {
      tier: 'microvm',
      service: 'self-hosted',
      engine: 'qemu',
      ...images.config,
      startTimeoutMs: PATIENCE_MS,
    },
    node: ['/usr/bin/node'],
    probe: compileProbe(folder, ['-static']),
    leftovers: (id) => Promise.resolve(traces(id)),
    done: () => {
      images.remove()
      fs.rmSync(folder, { recursive: true })
      return Promise.resolve()
    },
  }
}
