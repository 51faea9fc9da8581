/** Who may do what in the console: scopes, tokens that end, keyboards, colours, and what reads the page aloud. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { describeWith } from '../../clients/installed.ts'
import { startTestGateway } from '../../integration/test-gateway.ts'
import { createAuthority } from '../../origins/certificates.ts'
import { type ConsoleFixture, launchBrowser, startConsole } from './console-page.ts'

let browser: Browser
let fixture: ConsoleFixture

/** For a machine that does other things beside. */
vi.setConfig({ testTimeout: 240_000 })

describeWith('Chromium', 'access to the console', () => {
  beforeAll(async () => {
    browser = await launchBrowser()
    fixture = await startConsole(browser)
    await fixture.connect(`echo.example.test:${fixture.echo.port}`, { sub: 'one', tenant: 'acme' })
    await fixture.connect('refused.example:443', { sub: 'one', tenant: 'acme' })
  })
  afterAll(async () => {
    await browser.close()
    await fixture.close()
  })

  test('what a scope does not allow is there, disabled, with the reason', async () => {
    const token = await fixture.signedIn(['token'], { at: '#/decisions' })
    const needsRead = 'Needs the scope read; yours: token.'
    await token.page.getByRole('main').getByText(needsRead).waitFor()
    const menu = token.page.getByRole('navigation', { name: 'Views' })
    for (const name of ['Live decisions', 'Sandbox', 'Refused hosts', 'Explain', 'Audit log', 'Health and limits']) {
      const link = menu.getByRole('link', { name: new RegExp(`^${name}`) })
      expect([name, await link.getAttribute('aria-disabled')]).toEqual([name, 'true'])
      expect(await link.getAttribute('href')).toBeNull()
    }
    await menu.getByText('Needs the scope read or policy; yours: token.').waitFor()
    await menu.getByRole('link', { name: 'Tunnels' }).click()
    await token.page.getByRole('heading', { name: 'Tunnels', exact: true }).waitFor()
    await token.page.getByRole('row', { name: /acme one/ }).click()
    const story = token.page.getByRole('button', { name: 'Story of the sandbox' })
    expect(await story.getAttribute('aria-disabled')).toBe('true')
    await token.shoot('scope-token')
    expect(await token.barriers()).toEqual([])
    await token.close()

    const read = await fixture.signedIn(['read'])
    await read.page.getByRole('link', { name: 'Tunnels' }).click()
    await read.page.getByRole('heading', { name: 'Tunnels', exact: true }).waitFor()
    await read.page.getByRole('row', { name: /acme one/ }).click()
    const cut = read.page.getByRole('button', { name: 'Cut this tunnel…' })
    await read.page.getByText('Needs the scope token; yours: read.').first().waitFor()
    await cut.click({ force: true })
    expect(await read.page.getByRole('dialog').count()).toBe(0)
    await read.page.getByRole('link', { name: 'Allow a host' }).click()
    await read.page.getByLabel('Tenant').fill('acme')
    await read.page.getByLabel('Entry').fill('new.example.test')
    await read.page.getByRole('button', { name: 'Show what would change' }).click()
    await read.page.getByText('appears: new.example.test').waitFor()
    await read.page.getByText('Needs the scope policy; yours: read.').waitFor()
    await read.page.getByRole('button', { name: 'Apply' }).click({ force: true })
    expect((await fixture.control.call('GET', '/v1/policies/acme')).body).toMatchObject({ source: 'configuration' })
    await read.close()
  })

  test('a token with the scope policy alone can allow a host, and sees no log', async () => {
    const opened = await fixture.signedIn(['policy'], { at: '#/allow?tenant=acme&host=other.example.test&port=8443' })
    const { page } = opened
    await page.getByText('appears: other.example.test:8443').waitFor()
    await page.getByRole('button', { name: 'Apply' }).click()
    await page.getByText('In force as version').waitFor()
    expect((await fixture.control.call('GET', '/v1/policies/acme')).body).toMatchObject({ source: 'api' })
    await opened.close()
  })

  test('a token that is revoked while the page is open signs out, and says why', async () => {
    const opened = await fixture.open()
    const { page } = opened
    const token = await fixture.control.adminToken(['read'], { name: 'gone' })
    const { jti } = JSON.parse(Buffer.from(token.split('.')[1]!, 'base64url').toString()) as { jti: string }
    await page.getByLabel('Admin token').fill(token)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('grid').waitFor()
    await fixture.control.call('POST', '/v1/revocations', { tokenId: jti })
    await page.getByText('You were signed out: the token is not accepted: token_revoked').waitFor()
    expect(await page.getByRole('grid').count()).toBe(0)
    await opened.close()
  })

  test('a client certificate that the configuration names needs no token; over TLS', async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-console-'))
    const file = (name: string, text: string): string => {
      fs.writeFileSync(path.join(folder, name), text, { mode: 0o600 })
      return path.join(folder, name)
    }
    const authority = createAuthority()
    const server = authority.issue('gateway', { addresses: ['127.0.0.1'] })
    const reader = authority.issue('reader', { client: true })
    const gateway = await startTestGateway({
      admin: {
        tls: { cert: file('cert', server.cert), key: file('key', server.key), clientCa: file('ca', authority.cert) },
        clients: [{ name: 'the reader', commonName: 'reader', scopes: ['read'] }],
      },
    })
    const origin = `https://127.0.0.1:${gateway.adminPort}`
    const certificate = { origin, cert: Buffer.from(reader.cert), key: Buffer.from(reader.key) }
    const context = await browser.newContext({ ignoreHTTPSErrors: true, clientCertificates: [certificate] })
    try {
      const page = await context.newPage()
      await page.goto(`${origin}/console/`)
      await page.getByRole('navigation', { name: 'Views' }).waitFor({ timeout: 60_000 })
      await page.getByText('the reader').waitFor()
      await page.getByRole('link', { name: 'Health and limits' }).click()
      await page.getByText('Tunnels of the gateway').waitFor()
    } finally {
      await context.close()
      await gateway.close()
      fs.rmSync(folder, { recursive: true, force: true })
    }
  })

  test('by keyboard alone: from the token to a tunnel that is cut', async () => {
    const { client } = await fixture.connect(`echo.example.test:${fixture.echo.port}`, {
      sub: 'typed',
      tenant: 'globex',
    })
    const opened = await fixture.open()
    const { page } = opened
    const focused = (): Promise<string> =>
      page.evaluate(() => (document.activeElement as HTMLElement | null)?.innerText.split('\n')[0] ?? '')
    const tabTo = async (text: string): Promise<void> => {
      for (let steps = 0; steps < 60 && (await focused()) !== text; steps++) await page.keyboard.press('Tab')
      expect(await focused()).toBe(text)
    }
    await page.keyboard.press('Tab')
    expect(await focused()).toBe('Skip to the content')
    await page.keyboard.press('Enter')
    await page.keyboard.press('Tab')
    await page.keyboard.insertText(await fixture.control.adminToken(['read', 'token']))
    await page.keyboard.press('Enter')
    await page.getByRole('grid').waitFor()
    await tabTo('Tunnels')
    // The focus is seen.
    expect(await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle)).toBe('solid')
    await page.keyboard.press('Enter')
    await page.getByRole('row', { name: /globex typed/ }).waitFor()
    // Into the view, over its filters, to the table.
    const grid = page.getByRole('grid', { name: 'Open tunnels' })
    for (let steps = 0; steps < 10 && !(await grid.evaluate((element) => element === document.activeElement)); steps++)
      await page.keyboard.press('Tab')
    for (let steps = 0; steps < 10; steps++) {
      await page.keyboard.press('ArrowDown')
      const at = await grid.getAttribute('aria-activedescendant')
      if ((await page.locator(`[id="${at}"]`).innerText()).includes('typed')) break
    }
    await page.keyboard.press('Enter')
    await page.getByRole('complementary').waitFor()
    await tabTo('Cut this tunnel…')
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').waitFor()
    await tabTo('Cut it')
    await page.keyboard.press('Enter')
    await page.getByText('The tunnel was cut.').waitFor()
    await expect.poll(() => client.isOver, { timeout: 30_000 }).toBe(true)
    await opened.close()
  })

  test('many lines by keyboard: the end of the list and back, with few rows in the page', async () => {
    for (let count = 0; count < 80; count++)
      await fixture.connect(`many-${count}.example:443`, { sub: `many-${count % 8}`, tenant: 'globex' })
    const opened = await fixture.signedIn(['read'])
    const { page } = opened
    const grid = page.getByRole('grid')
    await grid.getByText('many-79.example:443').waitFor()
    await grid.focus()
    const active = async (): Promise<string> => {
      const id = await grid.getAttribute('aria-activedescendant')
      return id === null ? '' : page.locator(`[id="${id}"]`).innerText()
    }
    // Lines that were there before may still be coming in.
    const last = async (): Promise<string> => {
      await page.keyboard.press('End')
      return active()
    }
    await expect.poll(last, { timeout: 30_000, interval: 500 }).toContain('operator')
    await page.keyboard.press('Home')
    await page.keyboard.press('PageDown')
    // A checkpoint may stand just there.
    const next = async (): Promise<string> => {
      await page.keyboard.press('ArrowDown')
      return active()
    }
    await expect.poll(next).toMatch(/many-\d+/)
    expect(Number(await grid.getAttribute('aria-rowcount'))).toBeGreaterThan(80)
    expect(await grid.getByRole('row').count()).toBeLessThan(60)
    await opened.close()
  })

  test('light, dark, and as the system says; every text can be read in both', async () => {
    const background = (page: Awaited<ReturnType<typeof fixture.open>>['page']): Promise<string> =>
      page.evaluate(() => getComputedStyle(document.body).backgroundColor)
    await fixture.connect('refused.example:443', { sub: 'seen', tenant: 'acme' })
    for (const [scheme, expected] of [
      ['light', 'rgb(244, 245, 247)'],
      ['dark', 'rgb(20, 22, 26)'],
    ] as const) {
      const opened = await fixture.signedIn(['read'], { colorScheme: scheme })
      const { page } = opened
      await page
        .getByRole('row', { name: /refused\.example/ })
        .first()
        .click()
      expect(await background(page)).toBe(expected)
      expect(await opened.barriers()).toEqual([])
      await opened.shoot(`decisions-${scheme}`)
      for (const name of ['Refused hosts', 'Health and limits', 'Audit log', 'Explain']) {
        await page.getByRole('link', { name }).click()
        await page.getByRole('heading', { level: 1, name }).waitFor()
        await page.waitForLoadState('networkidle')
        expect([scheme, name, await opened.barriers()]).toEqual([scheme, name, []])
        if (scheme === 'dark') await opened.shoot(`${name.toLowerCase().replaceAll(' ', '-')}-dark`)
      }
      const other = scheme === 'light' ? 'dark' : 'light'
      await page.getByLabel('Colours').selectOption(other)
      expect(await background(page)).not.toBe(expected)
      // It is remembered, unlike the token.
      await page.reload()
      await page.getByRole('heading', { name: 'Sign in' }).waitFor()
      expect(await background(page)).not.toBe(expected)
      expect(await opened.barriers()).toEqual([])
      await opened.close()
    }
  })

  test('a narrow window: everything is still there', async () => {
    await fixture.connect('refused.example:443', { sub: 'seen', tenant: 'acme' })
    const opened = await fixture.signedIn(['read'], { viewport: { width: 700, height: 900 } })
    const { page } = opened
    await page
      .getByRole('row', { name: /refused\.example/ })
      .first()
      .click()
    await page.getByRole('complementary').waitFor()
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(700)
    await opened.shoot('narrow')
    await opened.close()
  })
})
