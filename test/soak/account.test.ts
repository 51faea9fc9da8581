/** The soak's accounting must be able to find fault: each row plants one. */
import { describe, expect, it } from 'vitest'
import { type SoakLine, type Span, unaccounted } from './account.ts'
import type { Seen } from './client.ts'
import { grown } from './memory.ts'

const AT = Date.parse('2030-01-01T00:00:00.000Z')
const TARGET = 'c1.let.example.test:443'
const KILL: Span = { what: 'kill', gateway: 'tree', fromMs: AT, toMs: AT + 500 }
const good: Seen = {
  target: TARGET,
  gateway: 'tree',
  token: { text: '', id: 't1' },
  startedMs: AT,
  answer: '200',
  answeredMs: AT + 5,
  isIntact: true,
  endedMs: AT + 100,
  ending: 'end',
}
const time = new Date(AT).toISOString()
const opened: SoakLine = {
  instance: 'tree-1',
  kind: 'decision',
  time,
  request_id: 'r1',
  requested: TARGET,
  effective: 'allow',
}
const ended: SoakLine = {
  instance: 'tree-1',
  kind: 'close',
  time,
  request_id: 'r1',
  requested: TARGET,
  close_reason: 'client_closed',
}
const lost: SoakLine = { ...ended, close_reason: 'process_lost' }

describe('nothing is wrong when', () => {
  it.each<[string, readonly Seen[], readonly SoakLine[], readonly Span[]]>([
    ['a tunnel has a decision and an end', [good], [opened, ended], []],
    ['a tunnel was lost with its worker', [{ ...good, endedMs: AT + 3 }], [opened, lost], [KILL]],
    ['a client had no answer from a killed worker', [{ ...good, answer: 'gone', answeredMs: 0 }], [], [KILL]],
    [
      'a client had no answer in all the time that nobody had a turn',
      [{ ...good, answer: 'gone', answeredMs: 0, endedMs: AT + 30_000 }],
      [],
      [{ what: 'stall', fromMs: AT + 1000, toMs: AT + 20_000 }],
    ],
    [
      'a revoked token is refused',
      [{ ...good, answer: '407 token_revoked', token: { text: '', id: 't1', revokedMs: AT } }],
      [{ ...opened, kind: 'auth', effective: 'deny', reason: 'token_revoked' }],
      [],
    ],
  ])('%s', (_title, seen, lines, spans) => {
    expect(unaccounted(seen, lines, spans)).toEqual([])
  })
})

describe('it finds', () => {
  const late = { ...KILL, fromMs: AT + 60_000, toMs: AT + 60_500 }
  it.each<[string, readonly Seen[], readonly SoakLine[], readonly Span[], RegExp]>([
    ['no decision', [good], [], [], /there is no line/],
    ['no end', [good], [opened], [], /no line says that it ended/],
    [
      'no end for one that a killed worker had',
      [{ ...good, answer: 'gone' }],
      [opened],
      [KILL],
      /no line says that it/,
    ],
    ['two ends', [good], [opened, ended, ended], [], /ended twice/],
    ['an end of nothing', [], [ended], [], /never began/],
    ['two decisions', [good], [opened, { ...opened, request_id: 'r2' }, ended], [], /2 decisions/],
    ['a line that nobody asked for', [], [{ ...opened, effective: 'deny' }], [], /nobody asked/],
    ['a line that says otherwise', [good], [{ ...opened, effective: 'deny', reason: 'x' }], [], /the line says deny x/],
    ['lost lines', [], [{ instance: 'tree', kind: 'admin', time, lost: 3 }], [], /3 lines were lost/],
    ['a lost tunnel where nobody was killed', [good], [opened, lost], [late], /ended by `process_lost`/],
    ['a broken tunnel where no origin reset', [good], [opened, { ...ended, close_reason: 'error' }], [], /by `error`/],
    [
      'no answer, at once, where nothing but the machine stalled',
      [{ ...good, answer: 'gone' }],
      [],
      [{ ...KILL, what: 'stall' }],
      /nothing explains `gone`/,
    ],
    ['no answer where nobody was killed', [{ ...good, answer: 'gone' }], [], [late], /nothing explains `gone`/],
    [
      'a refusal of a full disk that was not',
      [{ ...good, answer: '503 audit_unavailable' }],
      [],
      [],
      /nothing explains/,
    ],
    [
      'a tunnel by a token that was revoked long ago',
      [{ ...good, token: { text: '', id: 't1', revokedMs: AT - 11_000 } }],
      [opened, ended],
      [],
      /nothing explains `200`/,
    ],
    [
      'a worker cut off where nothing stalled',
      [{ ...good, answer: '503 gateway_busy' }],
      [],
      [KILL],
      /nothing explains/,
    ],
    ['other bytes', [{ ...good, isIntact: false }], [opened, ended], [], /other bytes/],
  ])('%s', (_title, seen, lines, spans, fault) => {
    expect(unaccounted(seen, lines, spans).join('\n')).toMatch(fault)
  })
})

describe('memory', () => {
  const samples = (of: (at: number) => number) =>
    Array.from({ length: 24 }, (_none, at) => ({
      heapBytes: of(at) * 1024 * 1024,
      residentBytes: 5 * of(at) * 1024 * 1024,
      descriptors: 50,
    }))

  it('may rise while a process warms up, and in one moment', () => {
    expect(
      grown(
        'steady',
        samples((at) => (at < 8 ? 20 + at : at === 20 ? 200 : 30)),
      ),
    ).toEqual([])
  })

  it('may not go on rising', () => {
    expect(
      grown(
        'steady',
        samples((at) => 30 + 4 * at),
      ).join('\n'),
    ).toMatch(/heapBytes grew.*\n.*residentBytes grew/)
  })

  it('must have been looked at', () => {
    expect(grown('steady', []).join('\n')).toMatch(/too few/)
  })
})
