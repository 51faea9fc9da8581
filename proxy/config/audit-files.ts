/** Which values of the `audit` section are paths, and so relative to the folder of the file. */
import type { Config } from './schema.ts'

/** The section with every path given to `file`. */
export function resolveAuditFiles(audit: Config['audit'], file: (path: string) => string): Config['audit'] {
  const { webhook } = audit.alerts
  return {
    ...audit,
    path: file(audit.path),
    sinks: audit.sinks.map((sink) => {
      switch (sink.kind) {
        case 'otlp':
          return sink.authorizationFile === undefined
            ? sink
            : { ...sink, authorizationFile: file(sink.authorizationFile) }
        case 'webhook':
          return { ...sink, secretFile: file(sink.secretFile) }
        case 'syslog':
          return sink.caFile === undefined ? sink : { ...sink, caFile: file(sink.caFile) }
        case 'stdout':
          return sink
      }
    }),
    alerts:
      webhook === undefined
        ? audit.alerts
        : { ...audit.alerts, webhook: { ...webhook, secretFile: file(webhook.secretFile) } },
  }
}
