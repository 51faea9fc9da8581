/** The thread behind `audit-reader.ts`. It looks lines up in the index beside the files, as far as that goes, and reads what is younger, so that an answer is always whole. */
import { isMainThread, parentPort, workerData, type MessagePort } from 'node:worker_threads'
import { SallyportError } from '../../../policies/error.ts'
import { openLineIndexAsIs } from '../../audit/index/line-index.ts'
import { isLookUp } from '../../audit/match.ts'
import { queryAudit } from '../../audit/query.ts'
import type { AuditLine } from '../../audit/schema.ts'
import { summarize } from '../audit-summary.ts'
import { giveWay } from './give-way.ts'
import { type FromReader, type ReaderJob, readerSchema, type ToReader } from './job.ts'

/** Of a page, and a line more: the thread that serves connections writes the answer. A thousand ordinary lines have less. */
const MAX_PAGE_BYTES = 1 << 20

function serve(port: MessagePort, path: string): void {
  giveWay(5)
  const underway = new Map<number, AbortController>()

  port.on('message', (message: ToReader) => {
    if ('cancel' in message) {
      underway.get(message.id)?.abort()
      return
    }
    const { id, job } = message
    const controller = new AbortController()
    underway.set(id, controller)
    void answer(path, id, job, controller.signal)
      .catch((error: unknown): FromReader => {
        if (error instanceof SallyportError) return { id, unreadable: error.message }
        return { id, fault: error instanceof Error ? error.name : 'unknown' }
      })
      .then((result) => {
        underway.delete(id)
        port.postMessage(result)
      })
  })
}

async function answer(path: string, id: number, job: ReaderJob, signal: AbortSignal): Promise<FromReader> {
  const { filters } = job
  const opened = isLookUp(filters) ? await openLineIndexAsIs(path) : undefined
  try {
    if (job.kind === 'summary') {
      // All of its lines are read; of many, faster from the files.
      const index = opened?.hasFew(filters) === true ? opened : undefined
      return { id, counted: await summarize(queryAudit({ path, filters, signal, index }), job.options) }
    }
    const { limit, cursor } = job
    const lines: AuditLine[] = []
    let bytes = 0
    let next: string | undefined
    const found = queryAudit({ path, filters, signal, limit, index: opened, ...(cursor !== undefined && { cursor }) })
    for await (const { line, text, cursor: here } of found) {
      lines.push(line)
      bytes += text.length
      if (lines.length < limit && bytes < MAX_PAGE_BYTES) continue
      next = here()
      break
    }
    return { id, found: { lines, cursor: next } }
  } finally {
    opened?.close()
  }
}

const started = isMainThread ? undefined : readerSchema.safeParse(workerData)
if (started?.success === true && parentPort !== null) serve(parentPort, started.data.folder)
