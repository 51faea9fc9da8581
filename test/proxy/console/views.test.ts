/** Every view of the console in a real browser, against a real gateway with real traffic. */
import fs from 'node:fs'
import path from 'node:path'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { describeWith } from '../../clients/installed.ts'
import { type ConsoleFixture, launchBrowser, startConsole } from './console-page.ts'

let browser: Browser
let fixture: ConsoleFixture

const echo = (): string => `echo.example.test:${fixture.echo.port}`
const of = (sandbox: string, tenant = 'acme') => ({ sub: sandbox, tenant })

/** For a machine that does other things beside. */
vi.setConfig({ testTimeout: 240_000 })

describeWith('Chromium', 'the console', () => {
  beforeAll(async () => {
    browser = await launchBrowser()
    fixture = await startConsole(browser)
  })
  afterAll(async () => {
    await browser.close()
    await fixture.close()
  })

  test('a token is pasted; a wrong one is refused with the reason; it is kept nowhere but in memory', async () => {
    const opened = await fixture.open()
    const { page } = opened
    await opened.shoot('sign-in')
    for (const [wrong, reason] of [
      ['no token at all', 'does not look like a token'],
      [await fixture.control.gateway.token(), 'the token is not accepted: token_'],
    ] as const) {
      await page.getByLabel('Admin token').fill(wrong)
      await page.getByRole('button', { name: 'Sign in' }).click()
      await page.getByRole('alert').getByText(reason).waitFor()
      expect(await page.getByLabel('Admin token').inputValue()).toBe('')
    }
    const token = await fixture.control.adminToken(['read'], { name: 'bob' })
    await page.getByLabel('Admin token').fill(` Bearer ${token}\n`)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { name: 'Live decisions' }).waitFor()
    await page.getByText('bob').waitFor()
    const kept = await page.evaluate(() =>
      JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]),
    )
    expect(kept).not.toContain('eyJ')
    expect(await page.content()).not.toContain(token)
    await page.reload()
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    await opened.close()
  })

  test('live decisions: lines come by themselves, are filtered, held while somebody looks, and go on', async () => {
    await fixture.connect(echo(), of('before'))
    const opened = await fixture.signedIn(['read', 'policy'])
    const { page } = opened
    const grid = page.getByRole('grid', { name: 'Lines of the audit log' })
    // What was before is there at once.
    await grid
      .getByRole('row', { name: /before/ })
      .first()
      .waitFor()
    await fixture.connect('paste.example:443', of('live'))
    const refused = grid.getByRole('row', {
      name: /refused acme live paste\.example:443 host_not_allowed, by the tenant/,
    })
    await refused.waitFor()
    await opened.shoot('decisions')

    await page.getByLabel('Outcome').selectOption('let out')
    await expect.poll(() => refused.count(), { timeout: 30_000 }).toBe(0)
    await grid
      .getByRole('row', { name: /before/ })
      .first()
      .waitFor()
    await page.getByLabel('Outcome').selectOption('')
    await page.getByLabel('Any field').fill('PASTE')
    await expect.poll(() => grid.getByRole('row', { name: /before/ }).count(), { timeout: 30_000 }).toBe(0)
    await page.getByRole('button', { name: 'Clear' }).click()
    await page.getByRole('textbox', { name: 'Tenant' }).fill('globex')
    await page.getByText('No line yet that fits').waitFor()
    await fixture.connect('files.example:443', of('elsewhere', 'globex'))
    await grid.getByRole('row', { name: /globex elsewhere files\.example/ }).waitFor()
    expect(page.url()).toContain('tenant=globex')
    await page.getByRole('button', { name: 'Clear' }).click()

    await page.getByRole('button', { name: 'Pause' }).click()
    await fixture.connect('held.example:443', of('held'))
    await page.getByRole('button', { name: /Resume \(\d+ new\)/ }).waitFor()
    expect(await grid.getByRole('row', { name: /held\.example/ }).count()).toBe(0)
    await page.getByRole('button', { name: /Resume \(\d+ new\)/ }).click()
    await grid.getByRole('row', { name: /held\.example/ }).click()
    const panel = page.getByRole('complementary')
    await panel.getByText('host_not_allowed', { exact: true }).waitFor()
    // Looking closer holds the flow.
    await page.getByRole('button', { name: 'Resume' }).waitFor()
    await opened.shoot('decisions-chosen')
    expect(await opened.barriers()).toEqual([])
    await opened.close()
  })

  test('the story of a sandbox: its identity, usage, tunnels and decisions in the order of time', async () => {
    const { client } = await fixture.connect(echo(), { ...of('hero'), jti: 'hero-token' })
    client.send('x'.repeat(10_000))
    await client.take(10_000)
    client.socket.destroy()
    await fixture.control.gateway.auditLine((line) => line['kind'] === 'close' && line['sandbox'] === 'hero')
    await fixture.connect('denied.example:443', { ...of('hero'), jti: 'hero-token' })
    const { client: open } = await fixture.connect(echo(), { ...of('hero'), jti: 'hero-token' })
    open.send('y'.repeat(1_000))
    await open.take(1_000)
    const opened = await fixture.signedIn(['read'])
    const { page } = opened
    await page.getByRole('link', { name: 'Sandbox' }).click()
    await page
      .getByRole('grid', { name: 'Sandboxes that are connected' })
      .getByRole('row', { name: /hero acme/ })
      .click()
    await page.getByRole('heading', { name: 'Sandbox hero' }).waitFor()
    await page.getByText('one: hero-token').waitFor()
    await page.getByText('1 of 10').waitFor()
    await page.getByText('9.8 KiB in, 9.8 KiB out').first().waitFor()
    const rows = page.getByRole('grid', { name: 'What the sandbox did' }).getByRole('row')
    await expect.poll(() => rows.count(), { timeout: 30_000 }).toBe(5)
    const story = (await rows.allInnerTexts()).slice(1).map((text) => text.split('\n')[1])
    expect(story).toEqual(['let out', 'closed', 'refused', 'let out'])
    await opened.shoot('sandbox')
    expect(await opened.barriers()).toEqual([])
    await page.getByLabel('Period').selectOption('15m')
    await expect.poll(() => rows.count(), { timeout: 30_000 }).toBe(5)
    await opened.close()
  })

  test('refused hosts: ranked over time, and from there to the tenants that ask', async () => {
    for (const [host, count] of [
      ['most.example', 4],
      ['some.example', 2],
    ] as const)
      for (let time = 0; time < count; time++) await fixture.connect(`${host}:443`, of('ranked', 'globex'))
    const opened = await fixture.signedIn(['read', 'policy'])
    const { page } = opened
    await page.getByRole('link', { name: 'Refused hosts' }).click()
    await page.getByRole('textbox', { name: 'Tenant' }).fill('globex')
    await page.getByRole('button', { name: 'Show' }).click()
    const ranking = page.getByRole('table', { name: 'Hosts, the most refused first' })
    await ranking.getByRole('row', { name: /1 most\.example 4/ }).waitFor()
    await ranking.getByRole('row', { name: /2 some\.example 2/ }).waitFor()
    // The columns of the chart hold what the table says.
    const chart = page.getByRole('img', { name: /Refusals from .* stacked by host/ })
    const titles = await chart.locator('title').allTextContents()
    const inChart = titles
      .filter((title) => title.startsWith('most.example'))
      .map((title) => Number(/: (\d+),/.exec(title)?.[1]))
    expect(inChart.reduce((sum, count) => sum + count, 0)).toBe(4)
    await ranking
      .getByRole('row', { name: /most\.example/ })
      .getByRole('button')
      .click()
    await page.getByRole('region', { name: 'Who asks' }).getByText('globex').waitFor()
    await opened.shoot('refused')
    expect(await opened.barriers()).toEqual([])
    await page.getByRole('button', { name: 'Allow for it…' }).click()
    await page.getByRole('heading', { name: 'Allow a host' }).waitFor()
    expect(await page.getByLabel('Entry').inputValue()).toBe('most.example')
    await opened.close()
  })

  test('a host is allowed: the difference, the dry run, somebody who was faster, and then it is let out', async () => {
    const target = `new.example.test:${fixture.echo.port}`
    expect((await fixture.connect(target, of('asks'))).status).toBe(403)
    const opened = await fixture.signedIn(['read', 'policy'])
    const { page } = opened
    await page.getByRole('row', { name: /asks new\.example\.test/ }).click()
    await page.getByRole('button', { name: 'Allow for this tenant…' }).click()
    const plan = page.getByRole('region', { name: 'What would change' })
    await plan.getByText(`appears: ${target}`).waitFor()
    await plan.getByText('No open tunnel would be cut').waitFor()
    await opened.shoot('allow')
    expect(await opened.barriers()).toEqual([])

    const { body: before } = await fixture.control.call('GET', '/v1/policies/acme')
    const faster = { kind: 'static', allowedHosts: ['echo.example.test:*', 'faster.example'] }
    await fixture.control.call('PUT', '/v1/policies/acme', { policy: faster, replaces: before['version'] })
    await plan.getByRole('button', { name: 'Apply' }).click()
    await page.getByText('Somebody changed this policy meanwhile').waitFor()
    await opened.shoot('allow-stale')
    expect((await fixture.connect(target, of('asks'))).status).toBe(403)

    await page.getByRole('button', { name: 'Read it again' }).click()
    await plan.getByText(`appears: ${target}`).waitFor()
    await plan.getByRole('button', { name: 'Apply' }).click()
    await page.getByText('would be let out').waitFor()
    await opened.shoot('allow-applied')
    expect((await fixture.connect(target, of('asks'))).status).toBe(200)
    const { body: after } = await fixture.control.call('GET', '/v1/policies/acme')
    expect(after['policy']).toMatchObject({ allowedHosts: ['echo.example.test:*', 'faster.example', target] })
    expect(
      await fixture.control.gateway.auditLine((line) => line['action'] === 'policy_put' && line['author'] === 'carol'),
    ).toMatchObject({
      added: [target],
    })
    await opened.close()
  })

  test('what allowing can not lift is said before: the ceiling, a policy that allows all, an entry that is none', async () => {
    const opened = await fixture.signedIn(['policy', 'read'])
    const { page } = opened
    await page.getByRole('link', { name: 'Allow a host' }).click()
    const ask = async (tenant: string, entry: string) => {
      await page.getByLabel('Tenant').fill(tenant)
      await page.getByLabel('Entry').fill(entry)
      await page.getByRole('button', { name: 'Show what would change' }).click()
    }
    await ask('acme', 'never.example.test')
    await page.getByText('The ceiling refuses it').waitFor()
    await ask('open', 'any.example')
    await page.getByText('allows every public host already').waitFor()
    await ask('acme', 'https://any.example/')
    await page.getByRole('alert').waitFor()
    await ask('nobody', 'any.example')
    await page.getByText('the tenant has no policy').waitFor()
    await page.getByText('kind: none becomes static').waitFor()
    await opened.close()
  })

  test('explain: the verdict of each layer, for a tenant and for a token that stays out of the page', async () => {
    const opened = await fixture.signedIn(['read'])
    const { page } = opened
    await page.getByRole('link', { name: 'Explain' }).click()
    await page.getByLabel('Tenant').fill('globex')
    await page.getByLabel('Host').fill('pypi.org')
    await page.getByRole('button', { name: 'Explain' }).click()
    const answer = page.getByRole('region', { name: 'Answer' })
    await answer.getByText('would be let out').waitFor()
    await page.getByLabel('Host').fill('never.example.test')
    await page.getByRole('button', { name: 'Explain' }).click()
    await answer.getByRole('row', { name: /ceiling refuses static enforce host_denied never\.example\.test/ }).waitFor()
    await opened.shoot('explain')
    expect(await opened.barriers()).toEqual([])
    const token = await fixture.control.gateway.token({
      ...of('asked'),
      egress: { kind: 'static', allowedHosts: ['only.example'] },
    })
    await page.getByLabel('For').selectOption('token')
    await page.getByLabel('Token or handle').fill(token)
    await page.getByRole('button', { name: 'Explain' }).click()
    await answer.getByRole('row', { name: /claim refuses/ }).waitFor()
    expect(page.url()).not.toContain('eyJ')
    await opened.close()
  })

  test('tunnels: one is cut after a question, and another stays', async () => {
    const { client: stays } = await fixture.connect(echo(), of('stays'))
    const { client: goes } = await fixture.connect(echo(), of('goes'))
    const opened = await fixture.signedIn(['read', 'token'])
    const { page } = opened
    await page.getByRole('link', { name: 'Tunnels' }).click()
    await page.getByRole('row', { name: /acme goes echo\.example\.test/ }).click()
    await page.getByRole('button', { name: 'Cut this tunnel…' }).click()
    const question = page.getByRole('dialog', { name: 'Cut this tunnel?' })
    await question.getByText('goes').waitFor()
    await opened.shoot('tunnels-question')
    await page.keyboard.press('Escape')
    await question.waitFor({ state: 'hidden' })
    expect(goes.isOver).toBe(false)
    await page.getByRole('button', { name: 'Cut this tunnel…' }).click()
    await question.getByRole('button', { name: 'Cut it' }).click()
    await page.getByText('The tunnel was cut.').waitFor()
    await expect.poll(() => goes.isOver, { timeout: 30_000 }).toBe(true)
    expect(stays.isOver).toBe(false)
    await expect.poll(() => page.getByRole('row', { name: /acme goes/ }).count(), { timeout: 30_000 }).toBe(0)
    await fixture.control.gateway.auditLine((line) => line['close_reason'] === 'operator' && line['sandbox'] === 'goes')
    await fixture.control.gateway.auditLine((line) => line['action'] === 'cut' && line['author'] === 'carol')
    await page.getByRole('row', { name: /acme stays/ }).click()
    await opened.shoot('tunnels')
    expect(await opened.barriers()).toEqual([])
    await page.getByRole('button', { name: 'All of the sandbox…' }).click()
    await page.getByRole('button', { name: 'Cut them' }).click()
    await page.getByText('1 tunnels were cut.').waitFor()
    await expect.poll(() => stays.isOver, { timeout: 30_000 }).toBe(true)
    await opened.close()
  })

  test('health: what was dropped, and who is close to a limit', async () => {
    for (let count = 0; count < 11; count++) await fixture.connect(echo(), of('greedy'))
    const opened = await fixture.signedIn(['read'])
    const { page } = opened
    await page.getByRole('link', { name: 'Health and limits' }).click()
    await page.getByText('takes connections').waitFor()
    await page.getByRole('row', { name: 'refused: too many tunnels 1' }).waitFor()
    await page.getByRole('listitem').filter({ hasText: 'greedy' }).getByText('10 of 10').waitFor()
    await opened.shoot('health')
    expect(await opened.barriers()).toEqual([])
    await opened.close()
  })

  test('the log: its last checkpoint, a verification that succeeds, and one after somebody changed a line', async () => {
    const opened = await fixture.signedIn(['read'])
    const { page } = opened
    await page.getByRole('link', { name: 'Audit log' }).click()
    await page.getByText(/signed up to line \d+/).waitFor()
    await page.getByText('Not verified in this run yet.').waitFor()
    await page.getByRole('button', { name: 'Verify now' }).click()
    await page.getByText('verified', { exact: true }).waitFor()
    await opened.shoot('audit')
    expect(await opened.barriers()).toEqual([])
    const folder = fixture.control.gateway.config({}).audit.path
    const file = fs.readdirSync(folder).find((name) => name.endsWith('.jsonl'))!
    const text = fs.readFileSync(path.join(folder, file), 'latin1')
    fs.writeFileSync(path.join(folder, file), text.replace('"sandbox":"before"', '"sandbox":"bef0re"'), 'latin1')
    // Whoever asks at once gets what was found a moment ago.
    await expect
      .poll(
        async () => {
          await page.getByRole('button', { name: 'Verify now' }).click()
          return page.getByText('does not verify').count()
        },
        { timeout: 20_000, interval: 500 },
      )
      .toBe(1)
    await page.getByText('chain_broken').waitFor()
    await opened.shoot('audit-broken')
    await opened.close()
  })
})
