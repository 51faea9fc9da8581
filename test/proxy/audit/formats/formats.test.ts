import { describe, expect, it } from 'vitest'
import { ecsEvent } from '../../../../proxy/audit/formats/ecs.ts'
import { EVENT_FORMATS, formatEvent } from '../../../../proxy/audit/formats/format.ts'
import { ocsfEvent } from '../../../../proxy/audit/formats/ocsf.ts'
import { parseEndpoint } from '../../../../proxy/audit/formats/endpoint.ts'
import { HOSTILE, LINES } from './lines.ts'
import { MISSING, ocsfFaults } from './ocsf-schema.ts'

type Event = Readonly<Record<string, unknown>>
const ocsf = LINES.map(({ line }) => ocsfEvent(line) as Event)

/** Attributes that 3002 has beside those of every event, by the published schema. */
const AUTHENTICATION = {
  user: { type: 'object_t', requirement: 'required', object_type: 'user' },
  service: { type: 'object_t', object_type: 'service' },
  src_endpoint: { type: 'object_t', object_type: 'network_endpoint' },
  dst_endpoint: { type: 'object_t', object_type: 'network_endpoint' },
  auth_protocol_id: { type: 'integer_t' },
  auth_protocol: { type: 'string_t' },
  activity_id: { type: 'integer_t', requirement: 'required', enum: { 1: { caption: 'Logon' } } },
} as const

describe.each(EVENT_FORMATS)('%s', (format) => {
  it('is one line of JSON in printable ASCII, whatever the texts hold', () => {
    for (const { line, text } of LINES) {
      const formatted = formatEvent(format, line, text)
      expect(formatted).toMatch(/^\{[ -~]*\}$/)
      expect(() => JSON.parse(formatted) as unknown).not.toThrow()
    }
  })

  it('keeps what names a line for good, and every text that a client sent', () => {
    for (const { line, text } of LINES) {
      const event = JSON.stringify(JSON.parse(formatEvent(format, line, text)))
      expect(event).toContain(`${line.seq}`)
      expect(event).toContain(line.instance)
      if (line.requested !== undefined) expect(event).toContain(JSON.stringify(line.requested).slice(1, -1))
    }
  })
})

describe('OCSF', () => {
  it.skipIf(MISSING !== undefined)('every event is what the schema of its class says', () => {
    const faults = ocsf.flatMap((event) =>
      ocsfFaults(event, event['class_uid'] === 3002 ? AUTHENTICATION : {}).map(
        (fault) => `${String(event['class_name'])}: ${fault}`,
      ),
    )
    expect([...new Set(faults)]).toEqual([])
  })

  it.skipIf(MISSING !== undefined)('the check is awake', () => {
    const [event = {}] = ocsf
    expect(ocsfFaults({ ...event, activity_id: 42 })).toEqual([expect.stringContaining('activity_id: 42')])
    expect(ocsfFaults({ ...event, surprise: 1 })).toEqual(['surprise: unknown'])
    const { metadata: _metadata, ...bare } = event
    expect(ocsfFaults(bare)).toEqual(['metadata: required'])
    expect(ocsfFaults({ ...event, src_endpoint: {} })).toEqual([expect.stringContaining('src_endpoint')])
    expect(ocsfFaults({ ...event, dst_endpoint: { ip: 'x' } })).toEqual(['dst_endpoint.ip: no address'])
  })

  it('tells an opened connection from a refused one, a failed one and a reported one', () => {
    const seen = new Map(LINES.map(({ line }) => [line, ocsfEvent(line) as Event] as const))
    const find = (test: (line: (typeof LINES)[number]['line']) => boolean) => {
      const line = LINES.find((candidate) => test(candidate.line))?.line
      return line === undefined ? undefined : seen.get(line)
    }
    const reasonOf = (line: object) => ('reason' in line ? line.reason : undefined)
    expect(find((line) => line.kind === 'decision')).toMatchObject({
      class_uid: 4001,
      activity_id: 1,
      disposition_id: 1,
      action_id: 1,
    })
    expect(find((line) => line.kind === 'decision' && line.effective === 'deny')).toMatchObject({
      activity_id: 5,
      type_uid: 400_105,
      disposition_id: 2,
      action_id: 2,
      status_id: 2,
    })
    expect(
      find((line) => line.kind === 'decision' && line.effective === 'allow' && reasonOf(line) === 'connect_refused'),
    ).toMatchObject({ activity_id: 4, status_id: 2 })
    expect(
      find((line) => line.kind === 'decision' && line.effective === 'allow' && line.decision === 'deny'),
    ).toMatchObject({ activity_id: 1, disposition_id: 17 })
    expect(find((line) => line.kind === 'decision' && line.dialect === 'http')).toMatchObject({
      class_uid: 4002,
      activity_id: 99,
      http_request: { url: { hostname: 'api.example.com' } },
    })
    expect(find((line) => line.kind === 'close')).toMatchObject({
      activity_id: 2,
      traffic: { bytes_in: 10, bytes_out: 20 },
    })
    expect(find((line) => line.kind === 'auth')).toMatchObject({ class_uid: 3002, disposition_id: 23, status_id: 2 })
    expect(find((line) => line.kind === 'auth' && reasonOf(line) === 'token_expired')).toMatchObject({
      disposition_id: 2,
      status_detail: 'token_expired',
    })
    expect(find((line) => line.kind === 'admin')).toMatchObject({ class_uid: 0, message: 'reload' })
  })
})

it('ECS: fields stand where the schema has them', () => {
  const [open, refused, closed] = ['allow', 'deny', 'close'].map((word) =>
    ecsEvent(
      LINES.find(({ line }) => (line.kind === 'decision' ? line.effective : line.kind) === word)?.line ??
        LINES[0]!.line,
    ),
  )
  expect(open).toMatchObject({
    ecs: { version: '8.17.0' },
    event: { id: 'gw:1', category: ['network'], type: ['connection', 'allowed'], outcome: 'success' },
    source: { ip: '127.0.0.1', port: 50_000 },
    destination: { domain: 'api.example.com', ip: '203.0.113.7', port: 443 },
    organization: { id: 'acme' },
    rule: { name: '*.example.com' },
  })
  expect(refused).toMatchObject({ event: { type: ['connection', 'denied'], outcome: 'failure' } })
  expect(closed).toMatchObject({
    source: { bytes: 20 },
    destination: { bytes: 10 },
    network: { bytes: 30 },
    event: { duration: 1_500_000 },
  })
  expect(
    JSON.stringify(
      ecsEvent(LINES.find(({ line }) => line.kind === 'admin' && line.detail !== undefined)?.line ?? LINES[0]!.line),
    ),
  ).toContain(JSON.stringify(HOSTILE).slice(1, 5))
})

it.each([
  ['127.0.0.1:5', { ip: '127.0.0.1', port: 5 }],
  ['[2001:db8::1]:50000', { ip: '2001:db8::1', port: 50_000 }],
  ['2001:db8::1', { ip: '2001:db8::1' }],
  ['unix', {}],
  ['host.example:443', {}],
  [undefined, {}],
])('an endpoint %s is %j', (text, endpoint) => {
  expect(parseEndpoint(text)).toEqual(endpoint)
})

if (MISSING !== undefined) console.log(`skipped: ${MISSING}`)
