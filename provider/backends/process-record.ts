/** What is kept on the host about a sandbox of the process tier, so that another process can find, end and clear it. The sandbox can't see it. */
import { readdir, readFile, rename, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'

const recordSchema = z.object({
  version: z.literal(1),
  backend: z.enum(['process', 'passthrough']),
  id: z.string(),
  rootDir: z.string(),
  /** The process on the host whose end is the sandbox's end, and when it started: numbers come back. */
  pid: z.int().positive(),
  startTime: z.string(),
  /** Loopback port that leads to the gateway, where it is not the usual one. */
  gatewayPort: z.int().positive().optional(),
  /** Control groups to remove. */
  cgroups: z.array(z.string()),
  createdAtMs: z.number(),
  expiresAtMs: z.number().optional(),
  labels: z.record(z.string(), z.string()),
})

/** See the schema. */
export type ProcessRecord = Readonly<z.infer<typeof recordSchema>>

const FILE = 'process.json'
const MAX_SANDBOXES = 10_000

/** Writes it whole or not at all. */
export async function writeRecord(runtimeFolder: string, record: ProcessRecord): Promise<void> {
  const file = path.join(runtimeFolder, FILE)
  await writeFile(`${file}.new`, `${JSON.stringify(record)}\n`, { mode: 0o600 })
  await rename(`${file}.new`, file)
}

/** Undefined when there is none, or one that can't be read. */
export async function readRecord(runtimeFolder: string): Promise<ProcessRecord | undefined> {
  try {
    return recordSchema.parse(JSON.parse(await readFile(path.join(runtimeFolder, FILE), 'utf8')))
  } catch {
    return undefined
  }
}

/** Those of one backend below `runtimeRoot`; none for a folder that isn't there. */
export async function readRecords(
  runtimeRoot: string,
  backend: ProcessRecord['backend'],
): Promise<readonly ProcessRecord[]> {
  const names = await readdir(runtimeRoot).catch(() => [])
  const records: ProcessRecord[] = []
  for (const name of names.slice(0, MAX_SANDBOXES)) {
    const record = await readRecord(path.join(runtimeRoot, name))
    if (record?.backend === backend && record.id === name) records.push(record)
  }
  return records
}

/** When process `pid` started, in the kernel's ticks; undefined when it is gone or a zombie. */
export async function startTimeOf(pid: number): Promise<string | undefined> {
  const [state, ...fields] = await statFields(pid)
  return state === 'Z' || state === 'X' ? undefined : fields[18]
}

/** Whether process `pid` is there and `parent` started it. */
export async function isChildOf(pid: number, parent: number | undefined): Promise<boolean> {
  return parent !== undefined && (await statFields(pid))[1] === String(parent)
}

/** Whether the very process of the record is there. */
export async function isRunning({ pid, startTime }: Pick<ProcessRecord, 'pid' | 'startTime'>): Promise<boolean> {
  return (await startTimeOf(pid)) === startTime
}

/** From the state (the third) on; none when it is gone. @see man 5 proc_pid_stat */
async function statFields(pid: number): Promise<readonly string[]> {
  const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')
  // The name in parentheses may hold anything, so count from its end.
  return stat === '' ? [] : stat.slice(stat.lastIndexOf(')') + 2).split(' ')
}
