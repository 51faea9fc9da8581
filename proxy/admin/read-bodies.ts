/** How bodies of requests are read: as JSON, and large ones beside everything else. */
import type { FastifyInstance } from 'fastify'
import { isLarge, largeDocuments } from '../documents/large-documents.ts'
import { DocumentFault } from '../documents/parse-document.ts'
import { AdminError } from './admin-error.ts'

/** Takes the place of the reader of JSON that the server brings, which still reads what is small. */
export function readBodies(app: FastifyInstance): void {
  const small = app.getDefaultJsonParser('error', 'error')
  app.removeContentTypeParser('application/json')
  app.addContentTypeParser<Buffer>('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    if (!isLarge('json', body)) {
      void small(request, body.toString(), done)
      return
    }
    void largeDocuments.read('json', body).then(
      (value) => {
        done(null, value)
      },
      (fault: unknown) => {
        done(adminErrorOf(fault))
      },
    )
  })
}

function adminErrorOf(fault: unknown): AdminError {
  const isBusy = fault instanceof DocumentFault && ['busy', 'too_long', 'ended'].includes(fault.code)
  return new AdminError(
    isBusy ? 'busy' : 'request_malformed',
    `the body ${fault instanceof DocumentFault ? fault.message : 'can not be read'}`,
  )
}
