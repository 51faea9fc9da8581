/** Verifies the files of an instance in a thread of its own: gigabytes of hashing are no work for the loop that serves connections. */
import { readFileSync } from 'node:fs'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { z } from 'zod'
import { parseVerifyKeys } from '../key.ts'
import { listSegmentNames } from '../segments.ts'
import { type AuditFault, type InstanceReport, verifyAudit } from '../verify.ts'

const jobSchema = z.strictObject({
  job: z.literal('sallyport-verify'),
  folder: z.string(),
  instance: z.string(),
  keyFile: z.string(),
})

/** What was found. */
export interface Verified {
  /** The first thing that is wrong; absent when the log verifies. */
  readonly fault: AuditFault | undefined
  /** How far it was read. */
  readonly report: InstanceReport | undefined
}

/** Verifies the log of an instance. Rejects when it can't be read, or when `signal` aborts. */
export function verifyApart(
  job: { readonly folder: string; readonly instance: string; readonly keyFile: string },
  signal: AbortSignal,
): Promise<Verified> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: { job: 'sallyport-verify', ...job } })
    const stop = (): void => void worker.terminate()
    signal.addEventListener('abort', stop, { once: true })
    worker.once('message', (verified: Verified) => resolve(verified))
    worker.once('error', reject)
    worker.once('exit', () => {
      signal.removeEventListener('abort', stop)
      reject(new Error('the verification ended early'))
    })
    worker.unref()
  })
}

/** The fault as one line, for the log. */
export function faultLine({ code, message }: AuditFault): string {
  return `${code}, ${message}`
}

async function verifyHere(data: unknown): Promise<Verified> {
  const { folder, instance, keyFile } = jobSchema.parse(data)
  const keys = parseVerifyKeys(readFileSync(keyFile, 'utf8'), keyFile)
  const paths = listSegmentNames(folder).flatMap((segment) => (segment.instance === instance ? [segment.path] : []))
  const { fault, instances } = await verifyAudit({ paths, keys })
  return { fault, report: instances[0] }
}

if (!isMainThread && jobSchema.safeParse(workerData).success) parentPort?.postMessage(await verifyHere(workerData))
