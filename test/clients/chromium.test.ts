/** Headless Chromium with a proxy login, through playwright-core. Nothing that the browser does by itself leaves this machine. */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { type Browser, chromium } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { example } from './documented.ts'
import { type Clients, GREETING, startClients, urlOf } from './fixture.ts'
import { describeWith } from './installed.ts'

describeWith('Chromium', 'Chromium', () => {
  let clients: Clients
  let executable: string
  let browser: Browser

  beforeAll(async () => {
    clients = await startClients()
    new WebSocketServer({ server: clients.origins.plain }).on('connection', (socket) =>
      socket.on('message', (data) => socket.send(data, { binary: false })),
    )
    executable = writeLauncher(clients.folder)
    browser = await chromium.launch({
      executablePath: executable,
      args: [
        '--disable-quic',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
        '--no-first-run',
      ],
    })
  })
  afterAll(async () => {
    await browser.close()
    await clients.close()
  })

  /** What the gateway said of one host; the browser's own calls are other hosts, and must all be refused. */
  const outcomesOf = (lines: readonly Readonly<Record<string, unknown>>[], host: string) => {
    for (const line of lines) if (line['effective'] === 'allow') expect(line['host']).toBe(clients.allowed.host)
    return lines.filter((line) => line['host'] === host).map((line) => line['reason'] ?? line['effective'])
  }

  test('a login for the whole browser: TLS and plain HTTP', async () => {
    const run = await clients.run(example('playwright', clients.allowed, { CHROMIUM: executable }))
    expect(run.stdout, run.stderr).toBe(`200 undefined ${GREETING.tls}\n\n200 undefined ${GREETING.plain}\n\n`)
    expect(outcomesOf(run.lines, clients.allowed.host)).toContain('allow')
    // It always asks first.
    expect(run.outcomes[0]).toBe('token_missing')
  })

  test('a login for one context; a token of 16 KiB', async () => {
    for (const token of [clients.token, await clients.longToken(16 * 1024)]) {
      const run = await visit(token, urlOf(clients.allowed, 'https'))
      expect(run).toMatchObject({ status: 200, text: `${GREETING.tls}\n` })
      expect(outcomesOf(run.lines, clients.allowed.host)).toContain('allow')
    }
  })

  test('a refusal: an error page over TLS, the answer with its reason in plain HTTP', async () => {
    const secure = await visit(clients.token, urlOf(clients.denied, 'https'))
    expect(secure.error).toContain('net::ERR_TUNNEL_CONNECTION_FAILED')
    expect(outcomesOf(secure.lines, clients.denied.host)).toContain('host_not_allowed')
    const plain = await visit(clients.token, urlOf(clients.denied, 'http'))
    expect(plain).toMatchObject({ status: 403, reason: 'host_not_allowed' })
    expect(plain.text).toContain('"error":"host_not_allowed"')
  })

  test('a WebSocket from a page', async () => {
    const run = await clients.during(() =>
      inPage(clients.token, async (page) => {
        await page.goto(urlOf(clients.allowed, 'http'))
        const text = await page.evaluate(
          (url) =>
            new Promise<string>((resolve, reject) => {
              const socket = new WebSocket(url)
              socket.onopen = () => socket.send('from a page')
              socket.onmessage = ({ data }) => resolve(String(data))
              socket.onerror = () => reject(new Error('refused'))
            }),
          urlOf(clients.allowed, 'ws'),
        )
        return { text }
      }),
    )
    expect(run.text).toBe('from a page')
    expect(run.lines.filter((line) => line['effective'] === 'allow').map((line) => line['dialect'])).toContain(
      'connect',
    )
  })

  test('credentials in --proxy-server do not work', async () => {
    const other = await chromium.launch({ executablePath: executable, args: [`--proxy-server=${clients.loginUrl}`] })
    try {
      const page = await other.newPage({ ignoreHTTPSErrors: true })
      const run = await clients.during(async () => ({
        answer: await page.goto(urlOf(clients.allowed, 'https')).catch((error: unknown) => String(error)),
      }))
      expect(run.answer).toContain('net::ERR_')
      expect(run.outcomes).not.toContain('allow')
    } finally {
      await other.close()
    }
  })

  async function visit(token: string, url: string) {
    return clients.during(() =>
      inPage(token, async (page) => {
        try {
          const answer = await page.goto(url)
          return {
            status: answer?.status(),
            reason: answer?.headers()['x-deny-reason'],
            text: await page.textContent('body'),
          }
        } catch (error) {
          return { error: String(error) }
        }
      }),
    )
  }

  async function inPage<T>(
    token: string,
    action: (page: Awaited<ReturnType<Browser['newPage']>>) => Promise<T>,
  ): Promise<T> {
    const context = await browser.newContext({
      proxy: { server: clients.proxyUrl, username: 'sandbox', password: token },
    })
    try {
      return await action(await context.newPage())
    } finally {
      await context.close()
    }
  }
})

/** Chromium as tests need it: without its own sandbox, trusting the origin, and unable to find any name by itself. */
function writeLauncher(folder: string): string {
  const file = path.join(folder, 'chromium')
  const real = spawnSync('which', ['chromium'], { encoding: 'utf8' }).stdout.trim()
  const flags = [
    '--no-sandbox',
    '--disable-gpu',
    '--ignore-certificate-errors',
    `--host-resolver-rules='MAP * 127.0.0.1, EXCLUDE 127.0.0.1'`,
  ]
  fs.writeFileSync(file, `#!/bin/sh\nexec ${real} ${flags.join(' ')} "$@"\n`, { mode: 0o755 })
  return file
}
