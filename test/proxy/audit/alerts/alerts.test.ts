import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createAlertSink } from '../../../../proxy/audit/alerts/alert-sink.ts'
import { AlertDetector } from '../../../../proxy/audit/alerts/detector.ts'
import { formatEntry, type LogEntry } from '../../../../proxy/audit/line.ts'
import { parseLine } from '../../../../proxy/audit/match.ts'
import type { AuditLine } from '../../../../proxy/audit/schema.ts'
import { startReceiver, startShipper } from '../sinks/support.ts'
import { decision, makeFolder, openTestLog, until, writeAll } from '../support.ts'

const RULES = { challenges: 5, refusals: 4, canaryHosts: ['canary.example', '*.trap.example'] }
const START = 1_767_225_600_000
const challenge = (client = '10.0.0.1:5'): LogEntry => ({
  kind: 'auth',
  decision: 'deny',
  effective: 'deny',
  reason: 'token_missing',
  client,
})
const refusal = (sandbox = 'sbx_1') =>
  decision({ sandbox, decision: 'deny', effective: 'deny', reason: 'host_not_allowed' })

let seq = 0
function lineOf(entry: LogEntry, ms: number): AuditLine {
  const line = parseLine(`${formatEntry(entry, (seq += 1), START + ms, '"gw"')},"prev":"${'0'.repeat(64)}"}`)
  if (line === undefined) throw new Error('no line')
  return line
}

/** Kinds of the alerts that entries raise, one every `everyMs`. */
function alertsOf(entries: readonly LogEntry[], everyMs = 10, detector = new AlertDetector(RULES)): string[] {
  return entries.flatMap((entry, index) => detector.look(lineOf(entry, index * everyMs)).map(({ kind }) => kind))
}

const times = (count: number, entry: (index: number) => LogEntry) =>
  Array.from({ length: count }, (_, index) => entry(index))

describe('an alert', () => {
  const table: readonly (readonly [string, readonly LogEntry[], number, readonly string[]])[] = [
    ['challenged again and again without a token', times(12, () => challenge()), 10, ['challenges']],
    [
      'challenged on many ports of one address',
      times(12, (index) => challenge(`10.0.0.1:${1000 + index}`)),
      10,
      ['challenges'],
    ],
    ['challenged once by many', times(50, (index) => challenge(`10.0.0.${index}:5`)), 10, []],
    [
      'challenged and then let in, as clients do',
      times(40, (index) => (index % 2 === 0 ? challenge() : decision({ client: '10.0.0.1:5' }))),
      10,
      [],
    ],
    ['challenged slowly', times(12, () => challenge()), 300_000, []],
    ['a burst of refusals', times(9, () => refusal()), 10, ['refusals']],
    ['refusals of many sandboxes', times(30, (index) => refusal(`sbx_${index}`)), 10, []],
    ['refusals now and then', times(20, () => refusal()), 30_000, []],
    [
      'a burst of refused tokens',
      times(9, () => ({ ...challenge(), reason: 'token_expired' }) as LogEntry),
      10,
      ['refusals'],
    ],
    [
      'a canary, refused',
      [decision({ host: 'canary.example', effective: 'deny', reason: 'host_not_allowed' })],
      10,
      ['canary'],
    ],
    ['a canary, let out', [decision({ host: 'a.trap.example' })], 10, ['canary']],
    ['a canary, again and again', times(50, () => decision({ host: 'canary.example' })), 10, ['canary']],
    [
      'a name like a canary',
      [decision({ host: 'trap.example' }), decision({ host: 'xcanary.example' }), decision({ host: 'xtrap.example' })],
      10,
      [],
    ],
    [
      'a chain that does not verify',
      [{ kind: 'admin', action: 'verify_failed', detail: 'chain_broken' }],
      10,
      ['chain'],
    ],
    [
      'a removed file that did not verify',
      [{ kind: 'admin', action: 'retention', detail: 'file 1 is removed; NOT verified: x' }],
      10,
      ['chain'],
    ],
    [
      'a removed file that did',
      [{ kind: 'admin', action: 'retention', detail: 'file 1 is removed; it was verified' }],
      10,
      [],
    ],
  ]
  it.each(table)('%s', (_sentence, entries, everyMs, expected) => {
    expect(alertsOf(entries, everyMs)).toEqual(expected)
  })

  it('is raised again in the next window', () => {
    const detector = new AlertDetector(RULES)
    expect(
      alertsOf(
        times(6, () => refusal()),
        10,
        detector,
      ),
    ).toEqual(['refusals'])
    expect(
      alertsOf(
        times(6, () => refusal()),
        120_000,
        detector,
      ),
    ).toEqual([])
    const later = times(6, () => refusal()).flatMap((entry) =>
      detector.look(lineOf(entry, 10_000_000)).map(({ kind }) => kind),
    )
    expect(later).toEqual(['refusals'])
  })

  it('is not lost in a crowd that comes and goes: counters are bounded, the busy one is kept', () => {
    const crowd = times(30_000, (index) => challenge(`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}:1`))
    expect(alertsOf([...crowd, ...times(6, () => challenge('192.0.2.1:1'))], 0)).toEqual(['challenges'])
  })
})

it('alerts are posted one by one, signed, and after the webhook was down', async () => {
  const folder = makeFolder()
  const secretFile = join(folder, 'secret')
  writeFileSync(secretFile, 'a secret that is long enough to sign with')
  const log = await openTestLog(folder)
  const receiver = await startReceiver((response) => void response.writeHead(400).end())
  const sink = createAlertSink({
    detector: new AlertDetector(RULES),
    webhook: { url: receiver.url, secretFile, timeoutMs: 5000 },
  })
  const shipper = startShipper(folder, sink)
  await writeAll(log, [...times(5, () => refusal()), decision({ host: 'canary.example' })] as ReturnType<
    typeof decision
  >[])
  await until(() => receiver.requests.length > 2, 'attempts')
  const failed = receiver.requests.length
  receiver.answer = (response) => void response.end()
  await until(() => shipper.segment === 1, 'the alerts to be taken')
  const taken = receiver.requests
    .slice(failed)
    .map(({ body }) => JSON.parse(body) as { kind: string; count?: number; type: string })
  const kinds = taken.map(({ kind }) => kind)
  expect(kinds.filter((kind, index) => kinds.indexOf(kind) === index)).toEqual(['refusals', 'canary'])
  expect(taken.find(({ kind }) => kind === 'refusals')).toMatchObject({
    type: 'sallyport.alert',
    count: 4,
    sandbox: 'sbx_1',
    tenant: 'acme',
  })
  expect(receiver.requests.at(-1)?.headers['webhook-signature']).toMatch(/^v1,/)
  expect(await shipper.status()).toMatchObject({ refused: 0 })
})
