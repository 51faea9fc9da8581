/** The dashboard and the alert rules ask a gateway for what it exposes, and for nothing else; Prometheus understands them, and each alert is explained. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { freePort } from '../origins/free-port.ts'
import { ALL_REASONS, CLOSE_REASONS } from '../../proxy/reasons.ts'
import { type Origin, startEcho } from '../origins/origins.ts'
import { metricNames, scrape, type Series } from '../integration/scrape.ts'
import { startTestGateway, type TestGateway } from '../integration/test-gateway.ts'
import { WireClient } from '../integration/wire.ts'
import { describeNeeding } from '../provider/needs.ts'

const ROOT = path.resolve(import.meta.dirname, '../..')
const FOLDER = path.join(ROOT, 'deploy/observability')
const read = (...parts: readonly string[]) => fs.readFileSync(path.join(...parts), 'utf8')

const rule = z.strictObject({
  alert: z.string().regex(/^Sallyport[A-Za-z]+$/),
  expr: z.string(),
  for: z.string().optional(),
  labels: z.strictObject({ severity: z.enum(['page', 'ticket', 'info']) }),
  annotations: z.strictObject({ summary: z.string(), description: z.string(), runbook: z.string() }),
})
const rules = z
  .object({ groups: z.array(z.object({ name: z.string(), rules: z.array(rule) })) })
  .parse(parse(read(FOLDER, 'alerts.yaml')))
  .groups.flatMap((group) => group.rules)
const dashboard = z
  .object({
    panels: z.array(
      z.object({
        type: z.string(),
        id: z.number(),
        title: z.string(),
        description: z.string().optional(),
        gridPos: z.object({ x: z.number(), y: z.number(), w: z.number(), h: z.number() }),
        targets: z.array(z.object({ expr: z.string(), legendFormat: z.string() })).optional(),
      }),
    ),
    templating: z.object({ list: z.array(z.object({ name: z.string(), definition: z.string().optional() })) }),
  })
  .parse(JSON.parse(read(FOLDER, 'grafana-dashboard.json')))
/** Every expression, with where it is from. */
const expressions: readonly (readonly [string, string])[] = [
  ...rules.map(({ alert, expr }) => [alert, expr] as const),
  ...dashboard.panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => [title, expr] as const)),
  ...dashboard.templating.list.flatMap(({ name, definition }) => (definition ? [[name, definition] as const] : [])),
]

let echo: Origin
let gateway: TestGateway
/** A folder without a policy; that it is configured is enough for its metrics. */
let policies: string
let exposed: readonly Series[]

beforeAll(async () => {
  echo = await startEcho('127.66.0.11')
  policies = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-policies-'))
  gateway = await startTestGateway({
    policy: { ceiling: { kind: 'allow-all' }, tenantFiles: { path: policies } },
    network: { allowPrivate: ['127.66.0.0/24'] },
    admin: { open: ['jwks', 'metrics'] },
    audit: { sinks: [{ kind: 'otlp', url: 'http://127.0.0.1:9/v1/logs' }] },
    tracing: { otlp: { url: 'http://127.0.0.1:9/v1/traces' } },
  })
  const token = await gateway.token({ egress: { kind: 'allow-all' } })
  const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
  client.send(`CONNECT 127.66.0.11:${echo.port} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
  expect((await client.answer())?.status).toBe(200)
  client.destroy()
  await gateway.auditLine((line) => line['kind'] === 'close')
  exposed = await scrape(gateway.adminPort)
})
afterAll(async () => {
  await gateway.close()
  fs.rmSync(policies, { recursive: true })
  await echo.close()
})

describe('a query', () => {
  test.each(expressions)('of %s asks for metrics and labels that a gateway exposes', (_from, expression) => {
    const names = metricNames(exposed)
    const known = new Set(exposed.map(({ name }) => name))
    const asked = [...expression.matchAll(/\b(sallyport_\w+)(?:\{([^}]*)\})?/g)]
    expect(asked.length).toBeGreaterThan(0)
    const labels = new Set(['job', 'instance', 'le'])
    for (const [, name = '', matchers = ''] of asked) {
      expect(known, `${name} in ${expression}`).toContain(name)
      const own = names.get(name.replace(/_(bucket|sum|count)$/, '')) ?? names.get(name) ?? []
      for (const label of own) labels.add(label)
      for (const [, label = '', operator = '', value = ''] of matchers.matchAll(/(\w+)(=~|!=|!~|=)"([^"]*)"/g)) {
        expect([...own, 'job', 'instance'], `${label} of ${name}`).toContain(label)
        if (label !== 'job' && label !== 'instance') expectValue(label, operator, value)
      }
    }
    for (const [, grouped = ''] of expression.matchAll(/\bby \(([^)]*)\)/g))
      for (const label of grouped.split(',')) expect(labels, expression).toContain(label.trim())
  })

  test('is woken by what is not there', () => {
    const known = new Set(exposed.map(({ name }) => name))
    expect(known).not.toContain('sallyport_connection_total')
    expect(() => expectValue('reason', '=', 'host_unknown')).toThrow()
    expect(() => expectValue('reason', '=~', 'hosts_.*')).toThrow()
  })
})

/** A value that a label is compared with is one that it can have: each alternative of a pattern fits one at least. */
function expectValue(label: string, operator: string, value: string): void {
  const values: Readonly<Record<string, readonly string[]>> = {
    reason: [...ALL_REASONS, 'none'],
    close_reason: CLOSE_REASONS,
    decision: ['allow', 'deny'],
    step: ['identity', 'policy', 'dns', 'connect'],
    result: ['loaded', 'unchanged', 'failed', 'hit', 'miss', 'sent', 'rejected', 'dropped'],
  }
  const alternatives = operator.includes('~') ? value.split('|') : [value]
  for (const alternative of alternatives) {
    const pattern = new RegExp(`^(?:${alternative})$`)
    if (!(values[label] ?? []).some((one) => pattern.test(one))) throw new Error(`${label} is never \`${alternative}\``)
  }
}

describe('an alert', () => {
  const page = read(ROOT, 'docs/alerts.md')

  test.each(rules)('$alert is explained where it says, and shown by a test to fire', ({ alert, annotations }) => {
    expect(annotations.runbook).toBe(`docs/alerts.md#${alert.toLowerCase()}`)
    expect(page.split('\n')).toContain(`## ${alert}`)
    const { tests } = parse(read(FOLDER, 'alerts.test.yaml')) as {
      tests: { alert_rule_test: { alertname: string; exp_alerts: unknown[] }[] }[]
    }
    const cases = tests.flatMap((one) => one.alert_rule_test).filter(({ alertname }) => alertname === alert)
    expect(cases.some(({ exp_alerts }) => exp_alerts.length > 0)).toBe(true)
    expect(cases.some(({ exp_alerts }) => exp_alerts.length === 0)).toBe(true)
  })

  test('is on the page only if there is a rule', () => {
    const explained = [...page.matchAll(/^## (\w+)$/gm)].map(([, name]) => name)
    expect(explained).toEqual(rules.map(({ alert }) => alert))
  })
})

describe('the dashboard', () => {
  test('has every row, a description of every panel, and no two panels in one place', () => {
    const rows = dashboard.panels.filter(({ type }) => type === 'row').map(({ title }) => title)
    expect(rows).toEqual(['Overview', 'Refusals', 'Latency', 'Audit', 'Limits and process'])
    const panels = dashboard.panels.filter(({ type }) => type !== 'row')
    for (const panel of panels) expect(panel.description, panel.title).toMatch(/\S/)
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length)
    const taken = new Set<string>()
    for (const { gridPos } of dashboard.panels)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(x).toBeLessThan(24)
          expect(taken).not.toContain(`${x},${y}`)
          taken.add(`${x},${y}`)
        }
  })

  test('shows every metric but those that only rules need', () => {
    const all = expressions.map(([, expression]) => expression).join(' ')
    const unseen = [...metricNames(exposed).keys()].filter((name) => !all.includes(name))
    expect(unseen).toEqual(['sallyport_policy_generation'])
  })
})

describeNeeding(['prometheus'], 'Prometheus', () => {
  const promtool = (args: readonly string[], input?: string) =>
    spawnSync('promtool', args, { encoding: 'utf8', cwd: FOLDER, ...(input !== undefined && { input }) })

  test('understands the rules, and their tests hold', () => {
    const checked = promtool(['check', 'rules', 'alerts.yaml'])
    expect(checked.stdout + checked.stderr).toContain(`SUCCESS: ${rules.length} rules found`)
    const tested = promtool(['test', 'rules', 'alerts.test.yaml'])
    expect([tested.status, tested.stdout + tested.stderr]).toEqual([0, expect.stringContaining('SUCCESS')])
  })

  test('has nothing to say against the metrics of a gateway', async () => {
    const text = await (await fetch(`http://127.0.0.1:${gateway.adminPort}/metrics`)).text()
    const { status, stdout, stderr } = promtool(['check', 'metrics'], text)
    expect([status, stdout + stderr]).toEqual([0, ''])
  })

  test('scrapes a gateway as the page says, evaluates every rule and every panel, and finds no fault', async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-prometheus-'))
    onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }))
    const written = /```yaml\n# prometheus\.yml\n([^]*?)```/.exec(read(FOLDER, 'README.md'))?.[1] ?? ''
    fs.writeFileSync(path.join(folder, 'sallyport.token'), 'unused-since-metrics-are-open-in-this-test\n')
    fs.copyFileSync(path.join(FOLDER, 'alerts.yaml'), path.join(folder, 'alerts.yaml'))
    const config = written
      .replace('127.0.0.1:9090', `127.0.0.1:${gateway.adminPort}`)
      .replace('scrape_interval: 15s', 'scrape_interval: 1s\n    scrape_timeout: 1s')
    fs.writeFileSync(path.join(folder, 'prometheus.yml'), `global: { evaluation_interval: 1s }\n${config}`)
    expect(promtool(['check', 'config', path.join(folder, 'prometheus.yml')]).status).toBe(0)

    const port = await freePort()
    const server = spawn(
      'prometheus',
      [
        `--config.file=${folder}/prometheus.yml`,
        `--storage.tsdb.path=${folder}/data`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
      { stdio: 'ignore' },
    )
    onTestFinished(async () => {
      server.kill('SIGKILL')
      await once(server, 'exit')
    })
    const ask = async (route: string): Promise<unknown> => {
      const response = await fetch(`http://127.0.0.1:${port}/api/v1/${route}`)
      return ((await response.json()) as { data: unknown }).data
    }
    const up = async () => JSON.stringify(await ask('query?query=up').catch(() => ''))
    for (let tries = 0; !/"1"\]/.test(await up()) && tries < 200; tries += 1) await pause(100)
    expect(await up()).toMatch(/"job":"sallyport".*"1"\]/)

    const state = async () =>
      ((await ask('rules')) as { groups: { rules: { name: string; health: string; lastError?: string }[] }[] }).groups
        .flatMap((group) => group.rules)
        .map(({ name, health, lastError }) => [name, health, lastError])
    for (let tries = 0; (await state()).some(([, health]) => health === 'unknown') && tries < 100; tries += 1)
      await pause(100)
    expect(await state()).toEqual(rules.map(({ alert }) => [alert, 'ok', undefined]))

    for (const [from, expression] of expressions.filter(([, one]) => !one.startsWith('label_values'))) {
      const query = expression
        .replaceAll('$__rate_interval', '1m')
        .replaceAll('=~"$job"', '=~".*"')
        .replaceAll('=~"$instance"', '=~".*"')
      const response = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(query)}`)
      expect([from, response.status]).toEqual([from, 200])
    }
  })
})

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))
