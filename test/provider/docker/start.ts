/** Starts sandboxes of a backend as the provider does, and undoes what they left when a start fails. */
import { randomBytes } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import type { Backend, StartedSandbox, StartRequest } from '../../../provider/backend.ts'
import { createWorkerClient, type WorkerClient } from '../../../provider/worker-client.ts'

export interface TestSandbox {
  readonly id: string
  readonly folder: string
  readonly token: string
  readonly started: StartedSandbox
  readonly client: WorkerClient
  /** Output of a shell line. */
  readonly sh: (line: string) => Promise<string>
}

/** As the provider does: the folder first, then the backend; a failure undoes every step, last first. */
export async function startSandbox(
  backend: Backend,
  runtimeRoot: string,
  request: Partial<StartRequest> = {},
): Promise<TestSandbox> {
  const id = request.id ?? `sbx_${randomBytes(8).toString('hex')}`
  const folder = path.join(runtimeRoot, id)
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const token = randomBytes(32).toString('base64url')
  const steps: (() => Promise<void>)[] = []
  try {
    const started = await backend.start({
      id,
      runtimeFolder: folder,
      workerToken: token,
      env: {},
      labels: { owner: 'test', 'created-at': new Date().toISOString() },
      undo: (_step, action) => void steps.unshift(action),
      ...request,
    })
    const client = createWorkerClient({ connect: started.connect!, token })
    const sh = async (line: string): Promise<string> => {
      const { stdout, stderr } = await client.execute({ command: line })
      return stdout + stderr
    }
    return { id, folder, token, started, client, sh }
  } catch (error) {
    for (const step of steps) await step()
    throw error
  }
}
