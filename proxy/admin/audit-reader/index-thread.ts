/** Keeps the index of the audit log up to date while somebody asks, in a thread that gives way to all others: making it of a million lines takes many seconds. */
import { isMainThread, workerData } from 'node:worker_threads'
import { openLineIndex } from '../../audit/index/line-index.ts'
import { indexerSchema } from './job.ts'
import { giveWay } from './give-way.ts'

/** From the end of bringing it up to date to the next time; what is written meanwhile is read from the files. */
const REFRESH_MS = 2_000

/** Without room or permission for one there is none, and it is tried again. */
async function keepUp(folder: string): Promise<never> {
  giveWay(19)
  for (;;) {
    const opened = await openLineIndex(folder, undefined, true)
    if (opened.ok) opened.index.close()
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS))
  }
}

const started = isMainThread ? undefined : indexerSchema.safeParse(workerData)
if (started?.success === true) await keepUp(started.data.folder)
