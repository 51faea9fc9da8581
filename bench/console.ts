/**
 * `npm run bench:console -- [--rate 500] [--seconds 20]`
 * Whether the console stays responsive: lines are written to the audit log of a real gateway at a steady rate while its live view follows them in headless
 * Chromium. A task of more than 50 ms is a long one (`PerformanceObserver`); the aim is none of more than 100 ms. What others do on the machine is part of that
 * time, so the longest task is told in CPU time of its thread too, from a trace. Needs Chromium.
 */
import { parseArgs } from 'node:util'
import type { Page } from 'playwright-core'
import { generateAuditKey } from '../proxy/audit/key.ts'
import { openAuditLog } from '../proxy/audit/log.ts'
import type { AuditEntry } from '../proxy/audit/record.ts'
import { systemClock } from '../proxy/clock.ts'
import { launchBrowser, startConsole } from '../test/proxy/console/console-page.ts'

const { values } = parseArgs({
  options: { rate: { type: 'string', default: '500' }, seconds: { type: 'string', default: '20' } },
})
const rate = Number(values.rate)
const seconds = Number(values.seconds)
const TICK_MS = 20
/** For the page to be what it is while somebody looks at it. */
const WARM_MS = 5_000

interface Measured {
  /** Of the thread of the page. */
  readonly longestCpuMs: number
  readonly longTasks: readonly number[]
  readonly longestFrameMs: number
  readonly framesPerSecond: number
  readonly rows: number
  readonly elements: number
}

/** Runs in the page. */
const START_MEASURING = `{
  const seen = { tasks: [], frames: 0, longestFrameMs: 0, startedMs: performance.now(), lastMs: performance.now() }
  const observer = new PerformanceObserver((list) => seen.tasks.push(...list.getEntries().map(({ duration }) => duration)))
  observer.observe({ type: 'longtask' })
  let isOn = true
  const frame = (nowMs) => {
    seen.frames += 1
    seen.longestFrameMs = Math.max(seen.longestFrameMs, nowMs - seen.lastMs)
    seen.lastMs = nowMs
    if (isOn) requestAnimationFrame(frame)
  }
  requestAnimationFrame(frame)
  globalThis.stopMeasuring = () => {
    isOn = false
    observer.disconnect()
    return {
      longTasks: seen.tasks,
      longestFrameMs: seen.longestFrameMs,
      framesPerSecond: (seen.frames * 1000) / (performance.now() - seen.startedMs),
      rows: Number(document.querySelector('[role=grid]').getAttribute('aria-rowcount')) - 1,
      elements: document.querySelectorAll('*').length,
    }
  }
}`

const browser = await launchBrowser()
const fixture = await startConsole(browser)
// Another gateway on the same folder: the stream follows both, and nothing but the lines is measured.
const log = await openAuditLog({
  path: fixture.control.gateway.config({}).audit.path,
  instance: 'load',
  onFailure: 'allow',
  signingKey: generateAuditKey().key,
  clock: systemClock,
})
let written = 0
let due = 0
const load = setInterval(() => {
  due += (rate * TICK_MS) / 1_000
  for (; written < due; written++) void log.write(line(written))
}, TICK_MS)

const { page } = await fixture.signedIn(['read'])
const results: (readonly [string, Measured])[] = []
await page.waitForTimeout(WARM_MS)
results.push(['followed', await measured(page, () => page.waitForTimeout(seconds * 1_000))])
results.push(['filtered by what is typed, letter by letter', await measured(page, () => typeAll(page, seconds))])
await page.getByRole('button', { name: 'Clear' }).click()
results.push(['paused and resumed every second', await measured(page, () => pauseAll(page, seconds))])
results.push(['scrolled while held', await measured(page, () => scroll(page, seconds))])
clearInterval(load)

console.log(`${rate} lines a second, ${written} written; ${browser.version()}`)
console.table(
  Object.fromEntries(
    results.map(([name, { longestCpuMs, longTasks, longestFrameMs, framesPerSecond, rows, elements }]) => [
      name,
      {
        'tasks over 50 ms': longTasks.length,
        'longest task, ms': longTasks.length === 0 ? 'below 50' : Math.round(Math.max(...longTasks)),
        'longest, ms of CPU': Math.round(longestCpuMs),
        'longest frame, ms': Math.round(longestFrameMs),
        'frames a second': Math.round(framesPerSecond),
        'lines shown': rows,
        'elements in the page': elements,
      },
    ]),
  ),
)
await browser.close()
await log.close()
await fixture.close()

/** What the page did meanwhile. */
async function measured(page: Page, work: () => Promise<unknown>): Promise<Measured> {
  await browser.startTracing(page, { categories: ['toplevel', 'disabled-by-default-devtools.timeline', '__metadata'] })
  await page.evaluate(START_MEASURING)
  await work()
  const seen = await page.evaluate<Omit<Measured, 'longestCpuMs'>>('stopMeasuring()')
  return { ...seen, longestCpuMs: longestTask(await browser.stopTracing()) }
}

interface TraceEvent {
  readonly name: string
  readonly pid: number
  readonly tid: number
  /** Microseconds of CPU time. */
  readonly tdur?: number
  readonly args?: { readonly name?: string }
}

function longestTask(trace: Buffer): number {
  const { traceEvents } = JSON.parse(trace.toString()) as { readonly traceEvents: readonly TraceEvent[] }
  const isMain = new Set(
    traceEvents
      .filter(({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain')
      .map(({ pid, tid }) => `${pid}/${tid}`),
  )
  const tasks = traceEvents.filter(
    ({ name, pid, tid, tdur }) => /RunTask$/.test(name) && tdur !== undefined && isMain.has(`${pid}/${tid}`),
  )
  return tasks.reduce((longest, { tdur = 0 }) => Math.max(longest, tdur), 0) / 1_000
}

async function typeAll(page: Page, forSeconds: number): Promise<void> {
  const untilMs = Date.now() + forSeconds * 1_000
  const field = page.getByLabel('Any field')
  while (Date.now() < untilMs) {
    await field.pressSequentially('host-1', { delay: 150 })
    await page.waitForTimeout(1_000)
    await field.fill('')
  }
}

async function pauseAll(page: Page, forSeconds: number): Promise<void> {
  for (let second = 0; second < forSeconds; second++) {
    await page.getByRole('button', { name: /^(Pause|Resume)/ }).click()
    await page.waitForTimeout(1_000)
  }
}

async function scroll(page: Page, forSeconds: number): Promise<void> {
  const untilMs = Date.now() + forSeconds * 1_000
  await page.getByRole('grid').hover()
  while (Date.now() < untilMs) {
    await page.mouse.wheel(0, 600)
    await page.waitForTimeout(50)
  }
}

function line(count: number): AuditEntry {
  const isOut = count % 3 === 0
  return {
    kind: 'decision',
    decision: isOut ? 'allow' : 'deny',
    effective: isOut ? 'allow' : 'deny',
    rule: isOut ? '*.example' : undefined,
    reason: isOut ? undefined : 'host_not_allowed',
    layer: isOut ? undefined : 'tenant',
    request_id: `load-${count}`,
    tenant: `tenant-${count % 7}`,
    sandbox: `sbx-${count % 101}`,
    token_id: `token-${count % 101}`,
    issuer: 'https://issuer.example',
    dialect: 'connect',
    requested: `host-${count % 997}.some.example:443`,
    host: `host-${count % 997}.some.example`,
    port: 443,
    client: `10.0.0.${count % 250}:${40_000 + (count % 20_000)}`,
    policy_version: '41200f470b3f',
  }
}
