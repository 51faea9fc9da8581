/** `docs/control-api.md` lists every error with its status and no other, names every route, and its requests are ones that the gateway can read. */
import fs from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ADMIN_ERRORS, statusOf } from '../../../proxy/admin/admin-error.ts'
import { type ControlClient, operationFor, startControl } from './control-client.ts'

const page = fs.readFileSync(new URL('../../../docs/control-api.md', import.meta.url), 'utf8')
let control: ControlClient

beforeAll(async () => {
  control = await startControl()
})
afterAll(() => control.gateway.close())

test('every error', () => {
  const section = page.slice(page.indexOf('## Errors'))
  const documented = [...section.matchAll(/^\| `(\w+)` \| (\d+) \|/gm)].map(([, code, status]) => [
    code,
    Number(status),
  ])
  expect(documented).toEqual(ADMIN_ERRORS.map((code) => [code, statusOf(code)]))
})

test('every route', () => {
  const missing = Object.keys(control.document.paths).filter((template) => {
    const words = template
      .replace(/\{tenant\}/, 'acme')
      .replace(/\{requestId\}/, 'REQUEST_ID')
      .replace(/\{id\}/, 'ID')
    return !page.includes(words)
  })
  expect(missing).toEqual([])
})

test('every request of the examples is one that the gateway can read', async () => {
  const examples = [...page.matchAll(/^```http\n((?:POST|PUT|PATCH) (\S+)\n[^]*?)^```/gm)]
  expect(examples.length).toBeGreaterThanOrEqual(5)
  for (const [, text = '', route = ''] of examples) {
    const method = text.split(' ', 1)[0] ?? ''
    const request = text.slice(text.indexOf('\n') + 1).split(/\n\n/)[0] ?? ''
    // Several requests stand one on a line; one may go over several lines.
    for (const body of request.split(/\n(?=\{)/)) {
      expect(operationFor(control.document, method, route), route).toBeDefined()
      const { body: answer } = await control.call(method, route, body.replaceAll('…', 'x'))
      expect([route, body, answer['error'] === 'request_malformed']).toEqual([route, body, false])
    }
  }
})
