/** `policy explain` and the gateway judge the same addresses, however `network` is written. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { startTestGateway } from '../integration/test-gateway.ts'
import { startControl } from '../proxy/admin/control-client.ts'
import { WireClient } from '../integration/wire.ts'
import { runMain } from '../proxy/cli/run-cli.ts'

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-explain-'))
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }))

const UPSTREAM = { url: 'http://127.0.0.1:9', resolve: 'upstream' as const }
const ROWS: readonly [string, string, NonNullable<ConfigInput['network']>, string | undefined][] = [
  ['upper case', 'db.internal.test', { hosts: { 'DB.Internal.test': '10.0.0.1' } }, 'address_prohibited'],
  ['a trailing dot', 'db.internal.test', { hosts: { 'db.internal.test.': '10.0.0.1' } }, 'address_prohibited'],
  ['Unicode', 'xn--bcher-kva.test', { hosts: { 'bücher.test': '10.0.0.1' } }, 'address_prohibited'],
  ['unread, for the upstream resolves', 'a.test', { hosts: { 'a.test': '10.0.0.1' }, upstream: UPSTREAM }, undefined],
]

test.each(ROWS)('fixed hosts: %s', async (_what, host, network, refusal) => {
  const document: ConfigInput = { policy: { ceiling: { kind: 'allow-all' } }, network }
  const gateway = await startTestGateway(document)
  try {
    const token = await gateway.token({ egress: { kind: 'allow-all' } })
    const client = await WireClient.connect({ host: '127.0.0.1', port: gateway.port })
    client.send(`CONNECT ${host}:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`)
    const reason = (await client.answer())?.headers['x-deny-reason']?.[0]
    client.destroy()
    // Nobody is behind the upstream: policy let it out, and that is all that is asked here.
    expect(reason).toBe(refusal ?? 'connect_refused')
  } finally {
    await gateway.close()
  }
  const config = path.join(folder, 'sallyport.yaml')
  fs.writeFileSync(config, JSON.stringify({ state: path.join(folder, 'state'), ...document }))
  const explained = await runMain(['policy', 'explain', '--config', config, '--host', host, '--json'])
  const { decision } = JSON.parse(explained.stdout) as { decision: { reason?: string } }
  expect([explained.code, decision.reason]).toEqual([refusal === undefined ? 0 : 2, refusal])
})

test('a policy that was put through the control API counts for both', async () => {
  const control = await startControl({
    policy: { ceiling: { kind: 'allow-all' }, tenants: { acme: { kind: 'allow-all' } } },
  })
  try {
    const { version } = (await control.call('GET', '/v1/policies/acme')).body as { version: string }
    await control.call('PUT', '/v1/policies/acme', { policy: { kind: 'deny-all' }, replaces: version })
    const own = path.join(folder, 'kept.yaml')
    const document = { state: control.gateway.config({}).state, policy: control.gateway.config({}).policy }
    fs.writeFileSync(own, JSON.stringify(document))
    const explained = await runMain([
      'policy',
      'explain',
      '--config',
      own,
      '--tenant',
      'acme',
      '--host',
      'a.example',
      '--json',
    ])
    const asked = await control.call('POST', '/v1/explain', { tenant: 'acme', host: 'a.example' })
    expect(JSON.parse(explained.stdout)).toMatchObject({ decision: { layer: 'tenant', reason: 'host_not_allowed' } })
    expect(asked.body['decision']).toEqual((JSON.parse(explained.stdout) as { decision: object }).decision)
  } finally {
    await control.gateway.close()
  }
})
