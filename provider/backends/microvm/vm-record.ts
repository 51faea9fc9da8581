/** What is kept on the host about a machine, so that any process of the same user finds it and takes every part of it away. The guest can't see it. */
import { readdir, readFile, rename, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { isRunning } from '../process-record.ts'

const recordSchema = z.object({
  version: z.literal(1),
  engine: z.enum(['firecracker', 'qemu']),
  id: z.string(),
  /** Of the provider's process that made it. */
  owner: z.string(),
  /** The machine's folder on the host: images, sockets. */
  folder: z.string(),
  /** To be removed with it: the folder itself, or what the jailer made around it. */
  folders: z.array(z.string()),
  /** Those that make it up, the machine itself first, and when each started: numbers come back. */
  processes: z.array(z.object({ pid: z.int().positive(), startTime: z.string() })),
  /** Of this machine alone: whatever runs under it belongs to it. */
  uid: z.int().positive().optional(),
  uidClaim: z.string().optional(),
  cgroups: z.array(z.string()),
  network: z.string().optional(),
  memoryMb: z.number(),
  createdAtMs: z.number(),
  expiresAtMs: z.number().optional(),
  labels: z.record(z.string(), z.string()),
})

/** See the schema. */
export type MachineRecord = Readonly<z.infer<typeof recordSchema>>

const FILE = 'machine.json'
const MAX_MACHINES = 10_000

/** Writes it whole or not at all. */
export async function writeMachine(runtimeFolder: string, record: MachineRecord): Promise<void> {
  const file = path.join(runtimeFolder, FILE)
  await writeFile(`${file}.new`, `${JSON.stringify(record)}\n`, { mode: 0o600 })
  await rename(`${file}.new`, file)
}

/** Undefined when there is none, or one that can't be read. */
export async function readMachine(runtimeFolder: string): Promise<MachineRecord | undefined> {
  try {
    return recordSchema.parse(JSON.parse(await readFile(path.join(runtimeFolder, FILE), 'utf8')))
  } catch {
    return undefined
  }
}

/** Folders below `runtimeRoot` that are a machine's, with its record; none for a root that isn't there. */
export async function readMachines(
  runtimeRoot: string,
): Promise<readonly { readonly name: string; readonly record: MachineRecord }[]> {
  const names = await readdir(runtimeRoot).catch(() => [])
  const found: { name: string; record: MachineRecord }[] = []
  for (const name of names.slice(0, MAX_MACHINES)) {
    const record = await readMachine(path.join(runtimeRoot, name))
    if (record !== undefined) found.push({ name, record })
  }
  return found
}

/** Whether all that it consists of is there: without its vsock device it is of no use. */
export async function isWhole({ processes }: MachineRecord): Promise<boolean> {
  const running = await Promise.all(processes.map(isRunning))
  return processes.length > 0 && running.every(Boolean)
}
