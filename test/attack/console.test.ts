/** Getting a script, markup, a link or a misleading text into the console of an operator: by host, by the bytes of a request, by names in a token, by its address. */
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { describeWith } from '../clients/installed.ts'
import { WireClient } from '../integration/wire.ts'
import { type ConsoleFixture, launchBrowser, startConsole } from '../proxy/console/console-page.ts'

const MARKUP = '<img src=x onerror=window.pwned=1>'
const SCRIPT = '"><script>window.pwned=1</script>'
const TURNED = 'safe\u202egnp.exe\u2066\u200b'

/** Targets as a client may send them, in latin1. */
const TARGETS = [
  '<img/src=x/onerror=window.pwned=1>:443',
  '"><svg/onload=window.pwned=1>:443',
  'javascript:443',
  'javascript:window.pwned=1',
  "'-window.pwned=1-'.example:443",
  '{{constructor.constructor("window.pwned=1")()}}:443',
  '\xe2\x80\xaeevil.example:443',
  'a\x00b\x1b[2J\x07.example:443',
  '&lt;img&#32;src=x&gt;.example:443',
  '%3Cscript%3Ewindow.pwned=1%3C/script%3E:443',
  '__proto__:443',
]

/** For a machine that does other things beside. */
vi.setConfig({ testTimeout: 240_000 })

let browser: Browser
let fixture: ConsoleFixture

/** What no text may become. */
async function foreign(page: Page): Promise<readonly string[]> {
  return page.evaluate(() => {
    const allowed = (element: Element): boolean =>
      (element instanceof HTMLImageElement && /\/console\/assets\/gate-[^/]+\.svg$/.test(element.src)) ||
      (element instanceof HTMLAnchorElement && /^#\/?[a-z]+$/.test(element.getAttribute('href') ?? '#x'))
    const suspects = document.querySelectorAll(
      'img, a, body script, iframe, object, embed, base, form[action], [style*="url("]',
    )
    const found = [...suspects].filter((element) => !allowed(element)).map((element) => element.outerHTML)
    for (const element of document.querySelectorAll('*'))
      for (const { name } of element.attributes) if (name.startsWith('on')) found.push(`${name} on ${element.tagName}`)
    if ('pwned' in window) found.push('a script ran')
    if (/[\u202a-\u202e\u2066-\u2069\u200b]/.test(document.documentElement.outerHTML))
      found.push('a character that can not be seen')
    return found
  })
}

describeWith('Chromium', 'the console', () => {
  beforeAll(async () => {
    browser = await launchBrowser()
    fixture = await startConsole(browser)
  })
  afterAll(async () => {
    await browser.close()
    await fixture.close()
  })

  test('shows what was sent as text, in every view, and runs none of it', async () => {
    const echo = `echo.example.test:${fixture.echo.port}`
    for (const sub of [MARKUP, SCRIPT, TURNED]) {
      expect((await fixture.connect(echo, { sub, tenant: 'acme', jti: `${sub} token` })).status).toBe(200)
      await fixture.connect('refused.example:443', { sub, tenant: sub })
    }
    for (const target of TARGETS) await fixture.connect(target, { sub: 'sends', tenant: 'acme' })
    for (const url of [
      'http://<script>window.pwned=1</script>/',
      'http://a/<img src=x onerror=window.pwned=1>',
      'javascript:window.pwned=1',
    ]) {
      const client = await WireClient.connect({ port: fixture.control.gateway.port, host: '127.0.0.1' })
      client.send(`GET ${url} HTTP/1.1\r\nHost: a\r\nUser-Agent: ${MARKUP}\r\n\r\n`)
      await client.answer()
      client.destroy()
    }
    const opened = await fixture.open()
    const { page } = opened
    await page.getByLabel('Admin token').fill(await fixture.control.adminToken(['admin'], { name: MARKUP }))
    await page.getByRole('button', { name: 'Sign in' }).click()
    const grid = page.getByRole('grid')
    await grid.getByText('javascript:443').waitFor()
    expect(await page.locator('header.top').innerText()).toContain(MARKUP)
    expect(await grid.getByText(MARKUP).count()).toBeGreaterThan(0)
    expect(await grid.getByText('U+202E').count()).toBeGreaterThan(0)
    await opened.shoot('hostile-decisions')
    // Every line, whole.
    await grid.focus()
    const rows = Number(await grid.getAttribute('aria-rowcount')) - 1
    for (let row = 0; row < rows; row++) {
      await page.keyboard.press('ArrowDown')
      await page.keyboard.press('Enter')
    }
    expect(await foreign(page)).toEqual([])

    for (const sandbox of [MARKUP, SCRIPT, TURNED]) {
      await page.getByRole('link', { name: 'Sandbox' }).click()
      await page
        .getByRole('row', { name: sandbox.slice(0, 4) })
        .filter({ hasText: sandbox === TURNED ? 'U+202E' : sandbox })
        .first()
        .click()
      await page.getByText('1 of 10').waitFor()
      expect(await page.getByRole('heading', { level: 1 }).innerText()).toContain(
        sandbox === TURNED ? 'safeU+202Egnp.exe' : sandbox,
      )
      expect(await foreign(page)).toEqual([])
    }
    await opened.shoot('hostile-sandbox')

    await page.getByRole('link', { name: 'Refused hosts' }).click()
    await page.getByRole('table', { name: 'Hosts' }).getByText('refused.example').waitFor()
    await page
      .getByRole('row', { name: /refused\.example/ })
      .getByRole('button')
      .click()
    const who = page.getByRole('region', { name: 'Who asks' })
    await who.getByText(MARKUP).waitFor()
    expect(await foreign(page)).toEqual([])
    await opened.shoot('hostile-refused')
    // A tenant of that name is one that a policy can be given.
    await who.getByRole('listitem').filter({ hasText: MARKUP }).getByRole('button').click()
    await page.getByText('the tenant has no policy').waitFor()
    await page.getByRole('button', { name: 'Apply' }).click()
    await page.getByText('In force as version').waitFor()
    expect(await foreign(page)).toEqual([])

    await page.getByRole('link', { name: 'Tunnels' }).click()
    await page.getByRole('row').filter({ hasText: MARKUP }).first().click()
    await page.getByRole('button', { name: 'Cut this tunnel…' }).click()
    await page.getByRole('dialog').getByText(MARKUP).waitFor()
    expect(await foreign(page)).toEqual([])
    await page.keyboard.press('Escape')

    for (const [view, text] of [
      ['Health and limits', 'takes connections'],
      ['Audit log', 'lines are written'],
    ] as const) {
      await page.getByRole('link', { name: view }).click()
      await page.getByText(text).waitFor()
      expect(await foreign(page)).toEqual([])
    }
    await page.getByRole('link', { name: 'Explain' }).click()
    await page.getByLabel('Tenant').fill(TURNED)
    await page.getByLabel('Host').fill(MARKUP)
    await page.getByRole('button', { name: 'Explain' }).click()
    await page.getByRole('alert').waitFor()
    expect(await page.evaluate(() => 'pwned' in window)).toBe(false)
    await opened.close()
  })

  test('does nothing by itself for whoever makes an operator follow a link into it', async () => {
    const before = (await fixture.control.call('GET', '/v1/policies/acme')).body
    const hash = `#/allow?${new URLSearchParams({ tenant: 'acme', host: 'evil.example', port: '443', layer: MARKUP }).toString()}`
    const opened = await fixture.signedIn(['admin'], { at: hash })
    const { page } = opened
    await page.getByText('appears: evil.example').waitFor()
    expect(await foreign(page)).toEqual([])
    for (const at of [
      '#/javascript:window.pwned=1',
      `#/decisions?tenant=${encodeURIComponent(SCRIPT)}`,
      '#/sandbox?sandbox=__proto__&__proto__=x',
      '#//evil.example/',
    ]) {
      await page.evaluate((next) => (location.hash = next), at)
      await page.getByRole('heading', { level: 1 }).waitFor()
      expect(await foreign(page)).toEqual([])
    }
    expect((await fixture.control.call('GET', '/v1/policies/acme')).body).toEqual(before)
    await opened.close()
  })

  test('has a policy that holds even if a text became markup: nothing inline runs, nothing is asked elsewhere', async () => {
    const opened = await fixture.signedIn(['read'])
    const { page } = opened
    let asked = 0
    const other = http.createServer((_request, response) => {
      asked++
      response.setHeader('access-control-allow-origin', '*').end()
    })
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
    const elsewhere = `http://127.0.0.1:${(other.address() as AddressInfo).port}/`
    const outcome = await page.evaluate(async (elsewhere) => {
      const tried: Record<string, string> = {}
      const attempt = (name: string, act: () => unknown): void => {
        try {
          act()
          tried[name] = 'done'
        } catch (error) {
          tried[name] = (error as Error).name
        }
      }
      attempt('innerHTML', () => (document.createElement('div').innerHTML = '<img src=x onerror=window.pwned=1>'))
      attempt('insertAdjacentHTML', () =>
        document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.pwned=1>'),
      )
      attempt('a policy of trusted types', () =>
        (
          window as unknown as { trustedTypes: { createPolicy: (name: string, rules: object) => unknown } }
        ).trustedTypes.createPolicy('x', {}),
      )
      tried['fetch'] = await fetch(elsewhere).then(
        () => 'done',
        (error: unknown) => (error as Error).name,
      )
      const image = new Image()
      tried['image'] = await new Promise((resolve) => {
        image.onload = () => resolve('done')
        image.onerror = () => resolve('refused')
        image.src = `${elsewhere}x.png`
      })
      return tried
    }, elsewhere)
    expect(outcome).toEqual({
      innerHTML: 'TypeError',
      insertAdjacentHTML: 'TypeError',
      'a policy of trusted types': 'TypeError',
      fetch: 'TypeError',
      image: 'refused',
    })
    expect(await page.evaluate(() => 'pwned' in window)).toBe(false)
    for (const rule of ['connect-src', 'img-src'])
      expect([rule, opened.faults.some((fault) => fault.includes(`policy violated: ${rule} ${elsewhere}`))]).toEqual([
        rule,
        true,
      ])
    expect(asked).toBe(0)
    other.close()
    await page.context().close()
  })

  test('is not framed by anybody', async () => {
    const context = await browser.newContext()
    const page = await context.newPage()
    await page.setContent(`<iframe src="${fixture.origin}/console/"></iframe>`)
    const frame = page.frames()[1]
    await expect.poll(() => frame?.url()).toMatch(/^chrome-error:/)
    await context.close()
  })
})
