/** Makes the sinks that the configuration names. */
import type { Writable } from 'node:stream'
import { parseHostPort } from '../../config/audit-sinks.ts'
import type { Config } from '../../config/schema.ts'
import { createOtlpSink } from './otlp.ts'
import type { Sink } from './sink.ts'
import { createStdoutSink } from './stdout.ts'
import { createSyslogSink } from './syslog.ts'
import { createWebhookSink } from './webhook.ts'

/** What a sink says of the gateway. */
export interface SinkSurroundings {
  readonly instance: string
  readonly version: string
  /** Standard output. */
  readonly output: Writable
}

/** Nothing is connected before there is something to send. */
export function openSink(settings: Config['audit']['sinks'][number], around: SinkSurroundings): Sink {
  const { instance, version, output } = around
  switch (settings.kind) {
    case 'otlp':
      return createOtlpSink({ ...settings, timeoutMs: settings.timeoutSeconds * 1000, instance, version })
    case 'webhook':
      return createWebhookSink({ ...settings, timeoutMs: settings.timeoutSeconds * 1000, instance })
    case 'syslog': {
      const { host, port } = parseHostPort(settings.address) ?? { host: '', port: 0 }
      const tls = settings.tls ? { caFile: settings.caFile } : undefined
      return createSyslogSink({
        host,
        port,
        tls,
        format: settings.format,
        timeoutMs: settings.timeoutSeconds * 1000,
        instance,
      })
    }
    case 'stdout':
      return createStdoutSink({ format: settings.format, output })
  }
}
