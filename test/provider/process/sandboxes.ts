/** Sandboxes of the process backend without the rest of the provider: a folder, a bearer, a client. */
import { randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import type { Backend, StartedSandbox, StartRequest } from '../../../provider/backend.ts'
import { createProcessBackend, type ProcessBackendOptions } from '../../../provider/backends/process.ts'
import { createWorkerClient, type WorkerClient } from '../../../provider/worker-client.ts'

export interface TestSandbox {
  readonly id: string
  readonly runtimeFolder: string
  readonly started: StartedSandbox
  readonly client: WorkerClient
  /** A line for the shell; what it printed, errors after the rest. */
  shell(line: string): Promise<string>
  /** Ends it as the provider would: the backend, then the folder. */
  close(): Promise<void>
}

export interface TestBackend {
  readonly backend: Backend
  /** All runtime folders are in here. */
  readonly runtimeRoot: string
  request(changes?: Partial<StartRequest>): Promise<StartRequest>
  start(changes?: Partial<StartRequest>): Promise<TestSandbox>
  /** Undoes what `start` left behind when it failed. */
  readonly undone: readonly string[]
  close(): Promise<void>
}

/** A backend with folders of its own. */
export async function createTestBackend(
  options: Partial<ProcessBackendOptions> = {},
  make: (options: ProcessBackendOptions) => Backend = createProcessBackend,
): Promise<TestBackend> {
  const runtimeRoot = options.runtimeRoot ?? (await fs.mkdtemp(path.join(os.tmpdir(), 'sp-')))
  const backend = make({ ...options, runtimeRoot })
  const undone: string[] = []
  const open = new Set<TestSandbox>()
  const request = async (changes: Partial<StartRequest> = {}): Promise<StartRequest> => {
    const id = changes.id ?? `sbx_${randomBytes(6).toString('hex')}`
    const runtimeFolder = path.join(runtimeRoot, id)
    await fs.mkdir(runtimeFolder, { mode: 0o700 })
    return {
      id,
      runtimeFolder,
      workerToken: randomBytes(24).toString('base64url'),
      env: {},
      labels: {},
      undo: () => undefined,
      ...changes,
    }
  }
  return {
    backend,
    runtimeRoot,
    request,
    undone,
    start: async (changes) => {
      const steps: [string, () => Promise<void>][] = []
      const asked = await request({ ...changes, undo: (step, action) => steps.unshift([step, action]) })
      const started = await backend.start(asked).catch(async (error: unknown) => {
        for (const [step, action] of steps) {
          undone.push(step)
          await action()
        }
        throw error
      })
      const client = createWorkerClient({ connect: started.connect!, token: asked.workerToken })
      const sandbox: TestSandbox = {
        id: asked.id,
        runtimeFolder: asked.runtimeFolder,
        started,
        client,
        shell: async (line) => {
          const { stdout, stderr } = await client.execute({ command: line })
          return stdout + stderr
        },
        close: async () => {
          open.delete(sandbox)
          await started.stop()
          await fs.rm(asked.runtimeFolder, { recursive: true, force: true })
        },
      }
      open.add(sandbox)
      return sandbox
    },
    close: async () => {
      for (const sandbox of open) await sandbox.close()
      await backend.close?.()
      if (options.runtimeRoot === undefined) await fs.rm(runtimeRoot, { recursive: true, force: true })
    },
  }
}
