/**
 * Writes what the image of sandboxes has of ours: the worker, the filter of its system calls, and the init.
 *
 *     node deploy/fly/sandbox/image-files.ts FOLDER      in a checkout, on the processor that the image is for
 */
import fs from 'node:fs'
import path from 'node:path'
import { seccompFilter } from '../../../provider/backends/seccomp-filter.ts'
import { filterArchitecture } from '../../../provider/backends/syscalls.ts'
import { buildWorker } from '../../../scripts/build-worker.ts'

const [, , folder] = process.argv
if (folder === undefined) throw new Error('usage: image-files.ts FOLDER')
const architecture = filterArchitecture(process.arch)
if (architecture === undefined) throw new Error(`there is no system call filter for the processor \`${process.arch}\``)

await buildWorker(path.join(folder, 'worker.cjs'))
fs.writeFileSync(path.join(folder, 'filter.bpf'), seccompFilter(architecture))
fs.copyFileSync(path.join(import.meta.dirname, 'init'), path.join(folder, 'init'))
fs.chmodSync(path.join(folder, 'init'), 0o755)
