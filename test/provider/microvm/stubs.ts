/** Programs that stand in for Firecracker and its jailer, in a folder of their own. */
import fs from 'node:fs'
import path from 'node:path'
import { createProcessBackend } from '../../../provider/backends/process.ts'
import type { SelfHostedBackendConfig } from '../../../provider/index.ts'
import type { StubSettings } from './firecracker-process.ts'

const SPECIFICATION = path.join(
  import.meta.dirname,
  '../../../../shared/contracts/firecracker/firecracker-v1.16.1.yaml',
)

/** Printed where it is missing. */
export const NO_SPECIFICATION = fs.existsSync(SPECIFICATION) ? undefined : `Firecracker's specification is not at ${SPECIFICATION}: requests are not held to it` // prettier-ignore

/** A request as it was logged, with what is wrong with it. */
export interface LoggedRequest {
  readonly method?: string
  readonly path?: string
  readonly body?: Readonly<Record<string, unknown>>
  readonly status?: number
  readonly faults?: readonly string[]
  /** Of a guest that got its orders. */
  readonly seed?: string
}

export interface Stubs {
  readonly config: SelfHostedBackendConfig
  readonly folder: string
  readonly log: () => readonly LoggedRequest[]
  /** From now on; undefined: nothing of the kind. */
  readonly misbehave: (how: string | undefined) => void
  /** The jail of a sandbox, as long as there is one. */
  readonly jail: (id: string) => string
  readonly remove: () => Promise<void>
}

/** The images are small files of no content. */
export function makeStubs(): Stubs {
  // Not the default folder for such, which may be on a file system of its own.
  const folder = fs.mkdtempSync('/tmp/spf-')
  // Without the jailer they run as users of their own.
  fs.chmodSync(folder, 0o755)
  const log = path.join(folder, 'log')
  for (const name of ['guests', 'jail']) fs.mkdirSync(path.join(folder, name), { mode: 0o700 })
  for (const name of ['log', 'vmlinux', 'initrd.cpio', 'rootfs.squashfs'])
    fs.writeFileSync(path.join(folder, name), '', { mode: 0o644 })
  fs.chmodSync(log, 0o666)
  fs.chmodSync(path.join(folder, 'guests'), 0o777)
  const write = (name: string, program: string, settings: StubSettings): void => {
    const text = `#!/bin/sh\nexport SALLYPORT_STUB='${JSON.stringify(settings)}'\nexec '${process.execPath}' '${path.join(import.meta.dirname, program)}' "$@"\n`
    fs.writeFileSync(path.join(folder, name), text, { mode: 0o755 })
  }
  const misbehave = (how: string | undefined): void => {
    const settings = {
      contract: NO_SPECIFICATION === undefined ? SPECIFICATION : undefined,
      log,
      guests: path.join(folder, 'guests'),
      misbehave: how,
    }
    write('firecracker', 'firecracker-process.ts', settings)
    write('jailer', 'jailer-process.ts', settings)
  }
  misbehave(undefined)
  return {
    folder,
    config: {
      tier: 'microvm',
      service: 'self-hosted',
      firecrackerBinary: path.join(folder, 'firecracker'),
      jailerBinary: path.join(folder, 'jailer'),
      chrootBaseDir: path.join(folder, 'jail'),
      kvmDevice: '/dev/null',
      // What stands in for it takes seconds of a processor, and a busy machine has few.
      startTimeoutMs: 110_000,
      kernelImage: path.join(folder, 'vmlinux'),
      initrdImage: path.join(folder, 'initrd.cpio'),
      rootfsImage: path.join(folder, 'rootfs.squashfs'),
    },
    log: () => fs.readFileSync(log, 'utf8').split('\n').filter((line) => line !== '').map((line) => JSON.parse(line) as LoggedRequest), // prettier-ignore
    misbehave,
    jail: (id) => path.join(folder, 'jail/firecracker', id.replace('_', '-')),
    remove: async () => {
      // What stands for guests is swept by whoever made them, since the machines are killed.
      const guests = path.join(folder, 'guests')
      const backend = createProcessBackend({ runtimeRoot: guests })
      for (const name of fs.readdirSync(guests)) await backend.attach(name)
      fs.rmSync(folder, { recursive: true, force: true })
    },
  }
}
