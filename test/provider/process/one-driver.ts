/**
 * Makes one sandbox, runs commands in it one after the other, and says how each ended. A program of its own, so that it can be started as another user.
 * First argument: JSON of {@link OneOrder}; prints JSON of {@link OneReport}.
 */
import fs from 'node:fs/promises'
import path from 'node:path'
import type { StartRequest } from '../../../provider/backend.ts'
import type { ProcessBackendOptions } from '../../../provider/backends/process.ts'
import { createTestBackend } from './sandboxes.ts'

export interface OneOrder {
  readonly options: ProcessBackendOptions
  readonly request: Partial<Pick<StartRequest, 'memoryLimitMb' | 'maxProcesses' | 'timeoutMs'>>
  /** Host file that is copied into the working folder. */
  readonly program: string
  readonly commands: readonly (readonly string[])[]
  /** Goes on with the next command only when the sandbox is still there; false by default. */
  readonly stayForInput?: boolean
}

export interface OneReport {
  readonly id: string
  readonly results: readonly { readonly exitCode?: number; readonly stdout: string; readonly error?: string }[]
  readonly ended: boolean
}

const order = JSON.parse(process.argv[2] ?? '') as OneOrder
const backend = await createTestBackend(order.options)
const { id, client, started, runtimeFolder } = await backend.start(order.request)
let ended = false
void started.ended.then(() => (ended = true))
const copy = path.join(runtimeFolder, 'work', path.basename(order.program))
await fs.copyFile(order.program, copy)
await fs.chmod(copy, 0o755)
if (order.stayForInput === true) {
  console.log(JSON.stringify({ id }))
  await new Promise((resolve) => process.stdin.resume().once('end', resolve))
}
const results: OneReport['results'][number][] = []
for (const [command = '', ...args] of order.commands) {
  results.push(await client.execute({ command, args, timeoutMs: 60_000 }).then(({ exitCode, stdout }) => ({ exitCode, stdout }), (error: unknown) => ({ stdout: '', error: String(error) }))) // prettier-ignore
}
const report: OneReport = { id, results, ended }
await backend.close()
console.log(JSON.stringify(report))
process.exit(0)
