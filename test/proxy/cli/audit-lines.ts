/** Writes audit logs for tests of what reads them: lines as a gateway would write them, without a chain. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

export type Line = Readonly<Record<string, unknown>>

/** A decision; `over` is laid over one that was let out. */
export function decision(host: string, port: number, over: Line = {}): Line {
  return {
    kind: 'decision',
    tenant: 'acme',
    sandbox: 'sbx_1',
    host,
    port,
    decision: 'allow',
    effective: 'allow',
    ...over,
  }
}

/** The same, let out by a tenant's layer that only reports. */
export function reported(host: string, port: number, over: Line = {}): Line {
  return decision(host, port, { decision: 'deny', reason: 'host_not_allowed', layer: 'tenant', ...over })
}

/** The same, refused. */
export function refused(host: string, port: number, over: Line = {}): Line {
  return decision(host, port, {
    decision: 'deny',
    effective: 'deny',
    reason: 'host_not_allowed',
    layer: 'tenant',
    ...over,
  })
}

/** One file of a log; each line a second after the one before, the first an hour ago. */
export function writeLog(folder: string, lines: readonly Line[]): void {
  const startMs = Date.now() - 3_600_000
  const texts = lines.map((line, index) =>
    asciiJson({
      seq: index + 1,
      time: new Date(startMs + index * 1_000).toISOString(),
      instance: 'gw',
      ...line,
      prev: '0'.repeat(64),
    }),
  )
  writeFileSync(join(folder, 'audit-gw-000001.jsonl'), `${texts.join('\n')}\n`)
}

/** As a gateway writes texts. */
function asciiJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[^\x20-\x7e]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
