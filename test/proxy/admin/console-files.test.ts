/** The files of the console as the admin listener serves them: their policy, what is not served, and what is said where they are not built. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createAdminServer } from '../../../proxy/admin/server.ts'
import { type ControlClient, startControl } from './control-client.ts'

let control: ControlClient

beforeAll(async () => {
  control = await startControl()
})
afterAll(() => control.gateway.close())

const POLICY = {
  'default-src': "'none'",
  'script-src': "'self'",
  'style-src': "'self'",
  'img-src': "'self'",
  'connect-src': "'self'",
  'base-uri': "'none'",
  'form-action': "'none'",
  'frame-ancestors': "'none'",
  'require-trusted-types-for': "'script'",
  'trusted-types': "'none'",
}

describe('in a checkout', () => {
  test('the page and all that it names is served, without credentials, under a policy that lets nothing else run', async () => {
    const page = await fetch(control.url('/console/'))
    const html = await page.text()
    expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
    const named = [...html.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, name = '']) => name)
    expect(named.length).toBe(3)
    for (const name of named) expect(name).toMatch(/^\.\/assets\//)
    // Nothing stands in the page that the policy would have to allow.
    expect(html).not.toMatch(/<style|style=|<script(?![^>]* src=)|\son\w+=|javascript:|data:/i)
    for (const name of ['', ...named]) {
      const { status, headers } = await fetch(control.url(`/console/${name}`))
      const policy = Object.fromEntries(
        (headers.get('content-security-policy') ?? '')
          .split('; ')
          .map((each) => /^(\S+) (.*)$/.exec(each) ?? [])
          .map(([, name = '', value = '']) => [name, value] as const),
      )
      expect([name, status, policy]).toEqual([name, 200, POLICY])
      expect(headers.get('x-content-type-options')).toBe('nosniff')
      expect(headers.get('x-frame-options')).toBe('DENY')
      expect(headers.get('referrer-policy')).toBe('no-referrer')
      expect(headers.get('cross-origin-opener-policy')).toBe('same-origin')
    }
  })

  test('its script takes nothing from elsewhere, and makes no code or markup of texts', async () => {
    const html = await (await fetch(control.url('/console/'))).text()
    const name = /src="\.\/(assets\/[^"]+\.js)"/.exec(html)?.[1] ?? ''
    const script = await (await fetch(control.url(`/console/${name}`))).text()
    const addresses = [...script.matchAll(/https?:\/\/[^"'`\s)]+/g)].map(([address]) => address)
    // Names of XML, which nobody asks.
    expect(addresses.filter((address) => !address.startsWith('http://www.w3.org/'))).toEqual([])
    expect(script).not.toMatch(/\beval\(|new Function\(|document\.write|insertAdjacentHTML|outerHTML\s*=/)
  })

  test('the folder without its slash leads there', async () => {
    const response = await fetch(control.url('/console'), { redirect: 'manual' })
    expect([response.status, response.headers.get('location')]).toEqual([308, '/console/'])
  })

  test('nothing else is served: no other file, no way up, no other method', async () => {
    for (const name of [
      'style.css',
      'main.tsx',
      'assets/',
      '../openapi.json',
      '..%2f..%2fpackage.json',
      '%2e%2e/%2e%2e/package.json',
      'assets/..%2findex.html',
      '/etc/passwd',
      'index.html%00.js',
    ]) {
      const { status } = await fetch(control.url(`/console/${name}`))
      expect([name, [400, 401, 404].includes(status)]).toEqual([name, true])
    }
    for (const method of ['POST', 'PUT', 'DELETE', 'HEAD'])
      expect((await fetch(control.url('/console/'), { method })).status).toBe(404)
  })
})

test('`admin.console: false` takes all of it away, at the next reload too', async () => {
  const without = await startControl({ admin: { console: false } })
  try {
    for (const route of ['/console', '/console/', '/console/index.html'])
      expect([route, (await fetch(without.url(route), { redirect: 'manual' })).status]).toEqual([route, 404])
    await without.gateway.gateway.reload(() => without.gateway.config({ admin: { console: true } }))
    expect((await fetch(without.url('/console/'))).status).toBe(200)
  } finally {
    await without.gateway.close()
  }
})

test('where it is not built one line says how to build it, and the fault is for the log', async () => {
  const faults: unknown[] = []
  const server = createAdminServer({
    metrics: { render: () => Promise.resolve(''), contentType: 'text/plain' },
    notReady: () => [],
    publicKeys: () => ({ keys: [] }),
    open: () => [],
    access: { identify: () => Promise.reject(new Error('nobody')) },
    routes: [],
    version: 'test',
    console: {
      isOn: () => true,
      files: () => Promise.reject(new Error('no vite in /secret/path')),
      onFault: (fault) => faults.push(fault),
    },
  })
  try {
    const address = await server.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 })
    const port = address.kind === 'tcp' ? address.port : 0
    const response = await fetch(`http://127.0.0.1:${port}/console/`)
    const text = await response.text()
    expect([response.status, text.trim().split('\n').length]).toEqual([503, 1])
    expect(text).toContain('npm run build')
    expect(text).not.toContain('secret')
    expect(faults).toHaveLength(1)
  } finally {
    await server.close()
  }
})
