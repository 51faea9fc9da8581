/** Lays out what the image of a sandbox has besides its base: `node deploy/azure/sandbox/build.ts FOLDER`. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { seccompFilter } from '../../../provider/backends/seccomp-filter.ts'
import { buildWorker } from '../../../scripts/build-worker.ts'

const [, , folder = '/opt/sallyport'] = process.argv
fs.mkdirSync(folder, { recursive: true })
await buildWorker(path.join(folder, 'worker.cjs'))
// For the processor that the image is built on, and so for: its numbers of system calls are its own.
fs.writeFileSync(path.join(folder, 'filter.bpf'), seccompFilter(os.arch() === 'arm64' ? 'arm64' : 'x64'))
fs.copyFileSync(path.join(import.meta.dirname, 'entry'), path.join(folder, 'entry'))
for (const name of fs.readdirSync(folder)) fs.chmodSync(path.join(folder, name), 0o644)
