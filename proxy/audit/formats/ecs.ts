/**
 * Audit lines as events of the Elastic Common Schema 8. What it has no field for is below `sallyport`.
 * @see https://www.elastic.co/guide/en/ecs/8.17/ecs-field-reference.html
 */
import { isIP } from 'node:net'
import type { AuditLine } from '../schema.ts'
import { parseEndpoint } from './endpoint.ts'
import { withoutEmpty } from './without-empty.ts'

const VERSION = '8.17.0'

/** One event. */
export function ecsEvent(line: AuditLine): object {
  const client = parseEndpoint(line.client)
  const literal = line.host?.replace(/^\[(.*)\]$/, '$1')
  const isLiteral = literal !== undefined && isIP(literal) !== 0
  const dialled = line.kind === 'decision' ? parseEndpoint(line.dialled).ip : undefined
  return withoutEmpty({
    '@timestamp': line.time,
    ecs: { version: VERSION },
    event: {
      id: `${line.instance}:${line.seq}`,
      sequence: line.seq,
      module: 'sallyport',
      dataset: `sallyport.${line.kind}`,
      ...eventOf(line),
    },
    observer: { name: line.instance, type: 'proxy', vendor: 'Sallyport', product: 'Sallyport' },
    organization: { id: line.tenant },
    container: { id: line.sandbox },
    source: line.kind === 'close' ? { ...client, bytes: line.bytes_out } : client,
    destination: {
      address: line.host,
      domain: isLiteral ? undefined : line.host,
      ip: isLiteral ? literal : dialled,
      port: line.port,
      bytes: line.kind === 'close' ? line.bytes_in : undefined,
    },
    network: {
      transport: line.dialect === undefined ? undefined : 'tcp',
      protocol: line.dialect === 'http' ? 'http' : undefined,
      direction: line.dialect === undefined ? undefined : 'outbound',
      bytes: line.kind === 'close' ? line.bytes_in + line.bytes_out : undefined,
    },
    dns: {
      resolved_ip: line.kind === 'decision' ? line.resolved?.filter((address) => isIP(address) !== 0) : undefined,
    },
    rule: line.kind === 'decision' ? { name: line.rule, category: line.layer, version: line.policy_version } : {},
    tls: line.kind === 'close' ? { client: { server_name: line.sni } } : {},
    message: line.kind === 'admin' ? (line.detail ?? line.action) : undefined,
    sallyport: ownFields(line),
  })
}

function eventOf(line: AuditLine): object {
  switch (line.kind) {
    case 'auth':
      return {
        kind: 'event',
        category: ['authentication'],
        type: ['start', 'denied'],
        action: 'authenticate',
        outcome: 'failure',
        reason: line.reason,
      }
    case 'decision': {
      const allowed = line.effective === 'allow'
      const failed = line.reason !== undefined && /^(?:connect|dns)_/.test(line.reason)
      return {
        kind: 'event',
        category: ['network'],
        type: ['connection', allowed ? 'allowed' : 'denied', ...(failed ? ['error'] : [])],
        action: allowed ? 'let-out' : 'refuse',
        outcome: allowed && !failed ? 'success' : 'failure',
        reason: line.reason,
      }
    }
    case 'close':
      return {
        kind: 'event',
        category: ['network'],
        type: ['connection', 'end'],
        action: 'close',
        outcome: line.close_reason === 'error' ? 'failure' : 'success',
        reason: line.close_reason,
        // Nanoseconds.
        duration: Math.round(line.duration_ms * 1e6),
      }
    case 'admin':
      return { kind: 'event', category: ['configuration'], type: ['info'], action: line.action }
  }
}

function ownFields(line: AuditLine): object {
  const { request_id, token_id, issuer, key_id, dialect, requested } = line
  const shared = { request_id, token_id, issuer, key_id, dialect, requested }
  switch (line.kind) {
    case 'auth':
      return shared
    case 'decision': {
      const { decision, effective, dialled, dns_ms, connect_ms } = line
      return { ...shared, decision, effective, dialled, dns_ms, connect_ms }
    }
    case 'close':
      return { ...shared, policy_version: line.policy_version }
    case 'admin': {
      const { policy_version, lost, segment, previous, torn_bytes, cause, signer } = line
      return { ...shared, policy_version, lost, segment, previous, torn_bytes, cause, signer }
    }
  }
}
