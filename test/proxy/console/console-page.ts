/** A real gateway with real tunnels, and its console in headless Chromium. What leaves the gateway's origin, breaks the page's policy or is thrown in the page is kept. */
import fs from 'node:fs'
import path from 'node:path'
import axe from 'axe-core'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { expect } from 'vitest'
import type { AdminScope } from '../../../proxy/tokens/admin-token.ts'
import type { ConfigInput } from '../../../proxy/config/schema.ts'
import { WireClient } from '../../integration/wire.ts'
import { type Origin, startEcho } from '../../origins/origins.ts'
import { type ControlClient, startControl } from '../admin/control-client.ts'

const ADDRESS = '127.66.0.31'

/** Where screenshots go; never committed. */
const ARTEFACTS = path.resolve(import.meta.dirname, '../../../test-artefacts/console')

/** What runs in the page is text here: this file is also used where nothing is known of browsers. */
const TELL_VIOLATIONS = `document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) =>
  console.error('policy violated: ' + violatedDirective + ' ' + blockedURI))`

interface Violation {
  readonly id: string
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[]
}

export interface ConsoleFixture {
  readonly control: ControlClient
  readonly echo: Origin
  readonly origin: string
  /** A CONNECT with a token of these claims; what was answered, and the client if it was let out. */
  connect(target: string, claims: Record<string, unknown>): Promise<{ client: WireClient; status: number | undefined }>
  /** A page that nobody signed in to. */
  open(options?: BrowserContextOptions & { readonly at?: string }): Promise<ConsolePage>
  /** A page with a token of these scopes pasted in. */
  signedIn(scopes: readonly AdminScope[], options?: Parameters<ConsoleFixture['open']>[0]): Promise<ConsolePage>
  close(): Promise<void>
}

export interface ConsolePage {
  readonly page: Page
  /** What no page of ours may do. */
  readonly faults: readonly string[]
  shoot(name: string): Promise<void>
  /** What axe-core finds wrong, by its rule and the first place. */
  barriers(): Promise<readonly string[]>
  /** Checks {@link ConsolePage.faults} and closes it. */
  close(): Promise<void>
}

export const CONSOLE_CONFIG: ConfigInput = {
  policy: {
    ceiling: { kind: 'allow-all' },
    deniedHosts: ['never.example.test'],
    tenants: {
      acme: { kind: 'static', allowedHosts: ['echo.example.test:*'] },
      globex: { kind: 'static', allowedHosts: ['echo.example.test:*', '@pypi'] },
      open: { kind: 'allow-all' },
    },
  },
  admin: { requestsPerSecond: 10_000 },
  limits: { perSandbox: { tunnels: 10, bytesPerDay: '1MiB' } },
  network: {
    allowPrivate: ['127.66.0.0/24'],
    hosts: { 'echo.example.test': ADDRESS, 'new.example.test': ADDRESS, 'other.example.test': ADDRESS },
  },
}

export async function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: '/usr/bin/chromium',
    // Nothing that a browser does by itself leaves this machine.
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
      '--disable-background-networking',
      '--disable-component-update',
      '--no-first-run',
    ],
  })
}

export async function startConsole(browser: Browser, over: ConfigInput = {}): Promise<ConsoleFixture> {
  const echo = await startEcho(ADDRESS)
  const control = await startControl({ ...CONSOLE_CONFIG, ...over }, { version: '0.0.0-test' })
  const origin = control.url('').replace(/\/$/, '')
  const clients: WireClient[] = []

  const open: ConsoleFixture['open'] = async ({ at = '', ...options } = {}) => {
    const context = await browser.newContext({ viewport: { width: 1_360, height: 860 }, ...options })
    const faults: string[] = []
    await context.addInitScript({ content: TELL_VIOLATIONS })
    context.on('request', (request) => {
      if (!request.url().startsWith(`${origin}/`)) faults.push(`asked elsewhere: ${request.url()}`)
      if (request.url().includes('eyJ')) faults.push('a token in a URL')
    })
    context.setDefaultTimeout(60_000)
    const page = await context.newPage()
    page.on('pageerror', (error) => faults.push(`thrown: ${error.message}`))
    page.on('dialog', (dialog) => {
      faults.push(`a dialog of the page: ${dialog.message()}`)
      void dialog.dismiss()
    })
    page.on('console', (message) => {
      const text = message.text()
      // Answers that are no 200 are told there too, and are what is tested.
      if (message.type() === 'error' && !text.startsWith('Failed to load resource')) faults.push(text)
    })
    await page.goto(`${origin}/console/${at}`)
    await page.getByRole('heading', { name: 'Sign in to this gateway' }).waitFor()
    return {
      page,
      faults,
      shoot: async (name) => {
        fs.mkdirSync(ARTEFACTS, { recursive: true })
        await page.screenshot({ path: path.join(ARTEFACTS, `${name}.png`) })
      },
      barriers: async () => {
        await page.evaluate(axe.source)
        const found = await page.evaluate<readonly Violation[]>('axe.run().then(({ violations }) => violations)')
        return found.map(({ id, nodes }) => `${id}: ${nodes[0]?.html ?? ''} ${nodes[0]?.failureSummary ?? ''}`)
      },
      close: async () => {
        expect(faults).toEqual([])
        await context.close()
      },
    }
  }

  return {
    control,
    echo,
    origin,
    open,
    connect: async (target, claims) => {
      const client = await WireClient.connect({ port: control.gateway.port, host: '127.0.0.1' })
      clients.push(client)
      const token = await control.gateway.token({ egress: { kind: 'allow-all' }, ...claims })
      client.send(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
      return { client, status: (await client.answer())?.status }
    },
    signedIn: async (scopes, options) => {
      const opened = await open(options)
      await opened.page.getByLabel('Admin token').fill(await control.adminToken(scopes, { name: 'carol' }))
      await opened.page.getByRole('button', { name: 'Sign in' }).click()
      await opened.page.getByRole('navigation', { name: 'Views' }).waitFor()
      return opened
    },
    close: async () => {
      for (const client of clients.splice(0)) client.destroy()
      await control.gateway.close()
      await echo.close()
    },
  }
}
