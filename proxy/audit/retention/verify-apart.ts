/** Verifies the files of an instance in a thread of its own: gigabytes of hashing are no work for the loop that serves connections. */
import { readFileSync } from 'node:fs'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { z } from 'zod'
import { parseVerifyKeys } from '../key.ts'
import { listSegments } from '../segments.ts'
import { verifyAudit } from '../verify.ts'

const jobSchema = z.strictObject({
  job: z.literal('sallyport-verify'),
  folder: z.string(),
  instance: z.string(),
  keyFile: z.string(),
})

/** What is wrong with the log of an instance; undefined when it verifies. Rejects when it can't be read. */
export function verifyApart(
  job: { readonly folder: string; readonly instance: string; readonly keyFile: string },
  signal: AbortSignal,
): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: { job: 'sallyport-verify', ...job } })
    const stop = (): void => void worker.terminate()
    signal.addEventListener('abort', stop, { once: true })
    worker.once('message', (fault: string) => resolve(fault === '' ? undefined : fault))
    worker.once('error', reject)
    worker.once('exit', () => {
      signal.removeEventListener('abort', stop)
      reject(new Error('the verification ended early'))
    })
    worker.unref()
  })
}

async function verifyHere(data: unknown): Promise<string> {
  const { folder, instance, keyFile } = jobSchema.parse(data)
  const keys = parseVerifyKeys(readFileSync(keyFile, 'utf8'), keyFile)
  const paths = listSegments(folder).flatMap((segment) => (segment.instance === instance ? [segment.path] : []))
  const { ok, fault } = await verifyAudit({ paths, keys })
  return ok ? '' : `${fault?.code ?? 'unknown'}, ${fault?.message ?? ''}`
}

if (!isMainThread && jobSchema.safeParse(workerData).success) parentPort?.postMessage(await verifyHere(workerData))
