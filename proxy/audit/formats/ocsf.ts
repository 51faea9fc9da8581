/**
 * Audit lines as OCSF 1.8 events.
 * @see https://schema.ocsf.io/1.8.0/classes/network_activity
 * @see https://schema.ocsf.io/1.8.0/classes/http_activity
 * @see https://schema.ocsf.io/1.8.0/classes/authentication
 */
import { isIP } from 'node:net'
import type { AuditLine } from '../schema.ts'
import { parseEndpoint } from './endpoint.ts'
import { withoutEmpty } from './without-empty.ts'

const VERSION = '1.8.0'
type Of<Kind extends AuditLine['kind']> = Extract<AuditLine, { kind: Kind }>

/** Names and numbers that the standard gives a class. */
interface EventClass {
  readonly uid: number
  readonly name: string
  readonly category: number
  readonly categoryName: string
}

const NETWORK: EventClass = { uid: 4001, name: 'Network Activity', category: 4, categoryName: 'Network Activity' }
const HTTP: EventClass = { uid: 4002, name: 'HTTP Activity', category: 4, categoryName: 'Network Activity' }
const AUTHENTICATION: EventClass = {
  uid: 3002,
  name: 'Authentication',
  category: 3,
  categoryName: 'Identity & Access Management',
}
const BASE: EventClass = { uid: 0, name: 'Base Event', category: 0, categoryName: 'Uncategorized' }

const SEVERITY = { informational: 1, low: 2, medium: 3 } as const
const SEVERITY_NAMES = ['Unknown', 'Informational', 'Low', 'Medium'] as const

/** One event. `decision` and `close` are network activity, of plain HTTP requests HTTP activity; `auth` is authentication; `admin` a base event. */
export function ocsfEvent(line: AuditLine): object {
  switch (line.kind) {
    case 'auth':
      return authentication(line)
    case 'decision':
      return line.dialect === 'http' ? httpDecision(line) : networkDecision(line)
    case 'close':
      return line.dialect === 'http' ? httpClose(line) : networkClose(line)
    case 'admin':
      return admin(line)
  }
}

function networkDecision(line: Of<'decision'>): object {
  const activity = isFault(line) ? [4, 'Fail'] : line.effective === 'allow' ? [1, 'Open'] : [5, 'Refuse']
  return withoutEmpty({
    ...common(line, NETWORK, activity as [number, string], severityOf(line)),
    ...parties(line),
    ...verdict(line),
    connection_info: connectionInfo(),
    duration: whole(line.connect_ms),
  })
}

/** The method is not in the log, since it decides nothing; so the activity is `Other`, by the name of what happened. */
function httpDecision(line: Of<'decision'>): object {
  const name = isFault(line) ? 'Fail' : line.effective === 'allow' ? 'Allow' : 'Refuse'
  return withoutEmpty({
    ...common(line, HTTP, [99, name], severityOf(line)),
    ...parties(line),
    ...verdict(line),
    http_request: httpRequest(line),
    connection_info: connectionInfo(),
    duration: whole(line.connect_ms),
  })
}

function networkClose(line: Of<'close'>): object {
  return withoutEmpty({
    ...common(line, NETWORK, [2, 'Close'], SEVERITY.informational),
    ...parties(line),
    ...ended(line),
  })
}

function httpClose(line: Of<'close'>): object {
  return withoutEmpty({
    ...common(line, HTTP, [99, 'Close'], SEVERITY.informational),
    ...parties(line),
    ...ended(line),
    http_request: httpRequest(line),
  })
}

function ended(line: Of<'close'>): object {
  return {
    traffic: { bytes_in: line.bytes_in, bytes_out: line.bytes_out, bytes: line.bytes_in + line.bytes_out },
    tls: line.sni === undefined ? undefined : { sni: line.sni, version: 'unknown' },
    duration: whole(line.duration_ms),
    connection_info: connectionInfo(),
    policy: policyOf(line.policy_version),
    status_detail: line.close_reason,
    status_id: line.close_reason === 'error' ? 2 : 1,
    status: line.close_reason === 'error' ? 'Failure' : 'Success',
  }
}

/** A bare challenge, which many clients ask for first, is no failure. */
function authentication(line: Of<'auth'>): object {
  const isChallenge = line.reason === 'token_missing'
  const { ip, port } = parseEndpoint(line.client)
  return withoutEmpty({
    ...common(line, AUTHENTICATION, [1, 'Logon'], isChallenge ? SEVERITY.informational : SEVERITY.low),
    user: { name: line.sandbox ?? 'unknown', uid: line.sandbox, type_id: 0, org: org(line) },
    service: { name: 'sallyport', uid: line.instance },
    auth_protocol_id: 99,
    auth_protocol: 'Bearer token',
    src_endpoint: { ip, port },
    dst_endpoint: destination(line),
    action_id: 2,
    action: 'Denied',
    disposition_id: isChallenge ? 23 : 2,
    disposition: isChallenge ? 'Challenge' : 'Blocked',
    status_id: 2,
    status: 'Failure',
    status_code: line.reason,
    status_detail: line.reason,
  })
}

function admin(line: Of<'admin'>): object {
  return withoutEmpty({
    ...common(line, BASE, [99, line.action], line.action === 'gap' ? SEVERITY.medium : SEVERITY.informational),
    message: line.detail === undefined ? line.action : `${line.action}: ${line.detail}`,
    status_detail: line.action,
  })
}

function common(
  line: AuditLine,
  { uid, name, category, categoryName }: EventClass,
  [activity, activityName]: readonly [number, string],
  severity: number,
): object {
  const isGuarded = line.kind !== 'admin'
  return {
    time: Date.parse(line.time),
    timezone_offset: 0,
    class_uid: uid,
    class_name: name,
    category_uid: category,
    category_name: categoryName,
    activity_id: activity,
    activity_name: activityName,
    type_uid: uid * 100 + activity,
    type_name: `${name}: ${activity === 99 ? 'Other' : activityName}`,
    severity_id: severity,
    severity: SEVERITY_NAMES[severity],
    metadata: {
      version: VERSION,
      product: { name: 'Sallyport', vendor_name: 'Sallyport' },
      profiles: isGuarded ? ['security_control', ...(category === 4 ? ['network_proxy'] : [])] : undefined,
      uid: `${line.instance}:${line.seq}`,
      sequence: line.seq,
      original_time: line.time,
      log_name: line.kind,
      log_provider: line.instance,
      correlation_uid: line.request_id,
      tenant_uid: line.tenant,
    },
    unmapped: unmapped(line),
  }
}

function parties(line: Of<'decision' | 'close'>): object {
  const { ip, port } = parseEndpoint(line.client)
  return {
    src_endpoint: { ip, port, uid: line.sandbox },
    dst_endpoint: destination(line),
    proxy: { name: line.instance, svc_name: 'sallyport' },
    actor: { app_name: line.sandbox, app_uid: line.token_id },
    app_name: line.dialect,
  }
}

function destination({ host, port, ...line }: AuditLine): object {
  const dialled = line.kind === 'decision' ? parseEndpoint(line.dialled).ip : undefined
  const literal = host === undefined ? '' : host.replace(/^\[(.*)\]$/, '$1')
  const isLiteral = isIP(literal) !== 0
  const others = line.kind === 'decision' ? line.resolved?.filter((address) => isIP(address) !== 0) : undefined
  return {
    hostname: isLiteral ? undefined : host,
    ip: isLiteral ? literal : dialled,
    port,
    intermediate_ips: dialled === undefined ? others : undefined,
  }
}

function verdict(line: Of<'decision'>): object {
  const allowed = line.effective === 'allow'
  return {
    action_id: allowed ? 1 : 2,
    action: allowed ? 'Allowed' : 'Denied',
    // What a reporting layer would have refused went through, and is a finding all the same.
    disposition_id: !allowed ? 2 : line.decision === 'deny' ? 17 : 1,
    disposition: !allowed ? 'Blocked' : line.decision === 'deny' ? 'Logged' : 'Allowed',
    firewall_rule: { name: line.rule, category: line.layer, version: line.policy_version },
    policy: policyOf(line.policy_version),
    status_id: allowed && !isFault(line) ? 1 : 2,
    status: allowed && !isFault(line) ? 'Success' : 'Failure',
    status_code: line.reason,
    status_detail: line.reason,
  }
}

function policyOf(version: string | undefined): object | undefined {
  return version === undefined ? undefined : { name: 'egress', version }
}

function httpRequest({ request_id, requested, host, port }: Of<'decision' | 'close'>): object {
  const url = requested === undefined ? undefined : { scheme: 'http', hostname: host, port, url_string: requested }
  return { uid: request_id, url }
}

function connectionInfo(): object {
  return { direction_id: 2, direction: 'Outbound', protocol_num: 6, protocol_name: 'tcp' }
}

function org({ tenant }: AuditLine): object | undefined {
  return tenant === undefined ? undefined : { name: tenant, uid: tenant }
}

/** The far end failed, or its name did: policy had let it out. */
function isFault({ effective, reason }: Of<'decision'>): boolean {
  return effective === 'allow' && reason !== undefined && /^(?:connect|dns)_/.test(reason)
}

function severityOf(line: Of<'decision'>): number {
  return line.effective === 'allow' && line.decision === 'allow' ? SEVERITY.informational : SEVERITY.low
}

function whole(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : Math.round(ms)
}

/** What the standard has no place for, by the names of the log; the chain stays with the files. */
function unmapped(line: AuditLine): object {
  const { requested, issuer, key_id, token_id, dialect, client } = line
  const shared = { requested, issuer, key_id, token_id, dialect, client }
  if (line.kind === 'decision')
    return { ...shared, decision: line.decision, dns_ms: line.dns_ms, resolved: line.resolved?.join(' ') }
  if (line.kind !== 'admin') return shared
  const { segment, previous, torn_bytes, cause, lost, signer } = line
  return { ...shared, segment, previous, torn_bytes, cause, lost, signer }
}
