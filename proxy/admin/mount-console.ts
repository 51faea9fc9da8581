/**
 * Serves the console: a page that holds nothing of this gateway and asks the control API for all it shows, with the token that is pasted into it.
 * So its files need no credentials, which a browser could not send with a navigation; everything it asks for does.
 */
import type { FastifyInstance } from 'fastify'
import { AdminError } from './admin-error.ts'
import type { ConsoleFiles } from './console-files.ts'

/** What {@link mountConsole} needs. */
export interface ConsoleOptions {
  /** Whether it is served; asked each time. */
  readonly isOn: () => boolean
  /** Rejects where they were not built. */
  readonly files: () => Promise<ConsoleFiles>
  /** Told why there are no files. */
  readonly onFault: (error: unknown) => void
}

/** Only what this listener serves runs, is shown or is asked; no text becomes script or markup; nobody frames it. */
const HEADERS = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=(), usb=()',
  'referrer-policy': 'no-referrer',
  'x-frame-options': 'DENY',
}

const NOT_BUILT =
  'The console is not built. In a checkout: `npm ci && npm run build`; the log of the gateway says more.\n'

/** Adds `/console/` and what is below it. */
export function mountConsole(app: FastifyInstance, { isOn, files, onFault }: ConsoleOptions): void {
  const letIn = () => {
    if (!isOn()) throw new AdminError('not_found', 'there is no such route')
  }
  app.get('/console', (_request, reply) => {
    letIn()
    return reply.redirect('/console/', 308)
  })
  app.get<{ Params: { '*': string } }>('/console/*', async (request, reply) => {
    letIn()
    const found = await files().catch((error: unknown) => {
      onFault(error)
      return undefined
    })
    reply.headers(HEADERS)
    if (found === undefined) return reply.code(503).type('text/plain; charset=utf-8').send(NOT_BUILT)
    const name = request.params['*'] === '' ? 'index.html' : request.params['*']
    const file = found.get(name)
    if (file === undefined) throw new AdminError('not_found', 'the console has no such file')
    return reply.type(file.type).send(file.body)
  })
}
