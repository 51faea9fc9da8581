/** The thread behind `large-documents.ts`: reads one document at a time, and gives it away piece by piece, as it is asked to. */
import { isMainThread, type MessagePort, parentPort, workerData } from 'node:worker_threads'
import { DocumentFault, type DocumentFaultCode, type DocumentKind, parseDocument } from './parse-document.ts'
import { type Piece, piecesOf } from './pieces.ts'

/** What the thread is started with. */
export const DOCUMENT_JOB = 'sallyport-documents'

/** To the thread: a document, or that the next pieces may come. */
export type ToReader = { readonly kind: DocumentKind; readonly bytes: Uint8Array } | 'more'

/** From the thread. */
export type FromReader =
  { readonly pieces: readonly Piece[]; readonly isLast: boolean } | { readonly fault: DocumentFaultCode }

/** About half a millisecond for whoever gets them. */
const PIECES_AT_ONCE = 2000

function serve(port: MessagePort): void {
  let rest: Generator<Piece, void, undefined> | undefined
  port.on('message', (message: ToReader) => {
    let answer: FromReader
    try {
      if (message !== 'more') rest = piecesOf(parseDocument(message.kind, message.bytes))
      answer = next(rest)
    } catch (error) {
      answer = { fault: error instanceof DocumentFault ? error.code : 'ended' }
    }
    port.postMessage(answer)
  })
}

function next(rest: Generator<Piece, void, undefined> | undefined): FromReader {
  const pieces: Piece[] = []
  while (pieces.length < PIECES_AT_ONCE) {
    const step = rest?.next()
    if (step?.value === undefined) return { pieces, isLast: true }
    pieces.push(step.value)
  }
  return { pieces, isLast: false }
}

if (!isMainThread && parentPort !== null && workerData === DOCUMENT_JOB) serve(parentPort)
