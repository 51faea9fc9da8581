/** Machines of QEMU as the subject of the conformance suite. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { compileProbe } from '../compile-probe.ts'
import type { OwnSubject } from '../conformance/run-conformance.ts'
import { microvmImages } from './images.ts'

/** Emulated guests on a busy machine take their time. */
export const PATIENCE_MS = 300_000

/** Whatever names a sandbox on the host besides its processes: control groups and namespaces. */
export function traces(id: string): readonly string[] {
  const word = id.replace('sbx_', '')
  const groups = fs.existsSync('/sys/fs/cgroup') ? fs.globSync(`/sys/fs/cgroup/**/*${word}*`) : []
  const namespaces = fs.existsSync('/run/netns')
    ? fs.readdirSync('/run/netns').filter((name) => name.includes(word))
    : []
  const claims = '/run/sallyport-microvm/uids'
  const users = fs.existsSync(claims)
    ? fs.readdirSync(claims).filter((name) => {
        try {
          return fs.readFileSync(path.join(claims, name), 'utf8').includes(word)
        } catch {
          return false
        }
      })
    : []
  const mounts = fs.readFileSync('/proc/self/mounts', 'utf8').split('\n').filter((line) => line.includes(word)) // prettier-ignore
  return [...groups, ...namespaces, ...users, ...mounts]
}

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
