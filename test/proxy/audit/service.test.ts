/** Sinks of a whole gateway: configuration, metrics, and that nothing of them holds up a decision. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import http from 'node:http'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { openAuditService } from '../../../proxy/audit/service.ts'
import { verifyAudit } from '../../../proxy/audit/verify.ts'
import { parseConfig } from '../../../proxy/config/parse.ts'
import { startTestGateway } from '../../integration/test-gateway.ts'
import { recordingLogger, startReceiver } from './sinks/support.ts'
import { decisions, logFiles, makeFolder, openTestLog, testKey, until } from './support.ts'

const SECRET = 'marker-secret-with-32-characters-or-more'

async function metric(port: number, name: string): Promise<number | undefined> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
  const value = new RegExp(`^${name} (.*)$`, 'm').exec(text)?.[1]
  return value === undefined ? undefined : Number(value)
}

function get(port: number, authorization?: string, url = 'http://nowhere.example.test/'): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    http
      .get(
        {
          port,
          host: '127.0.0.1',
          path: url,
          headers: authorization === undefined ? {} : { 'proxy-authorization': authorization },
        },
        (response) => {
          response.resume()
          resolve(response.statusCode)
        },
      )
      .on('error', reject)
  })
}

it('a gateway sends its audit lines to a webhook that works, while a stalled collector holds up nothing', async () => {
  const folder = makeFolder()
  const secretFile = join(folder, 'secret')
  writeFileSync(secretFile, SECRET)
  const hook = await startReceiver()
  const stalled = await startReceiver(() => undefined)
  const gateway = await startTestGateway({
    admin: { open: ['metrics'] },
    audit: {
      sinks: [
        { kind: 'webhook', name: 'hook', url: hook.url, secretFile, format: 'ocsf' },
        { kind: 'otlp', url: stalled.url },
      ],
    },
  })
  try {
    for (let count = 0; count < 20; count += 1) expect(await get(gateway.port)).toBe(407)
    await until(
      () => hook.requests.length > 0 && hook.requests.at(-1)?.body.includes('"class_uid":3002') === true,
      'the lines',
    )
    await until(() => stalled.requests.length > 0, 'an attempt at the stalled collector')
    expect(await metric(gateway.adminPort, 'sallyport_audit_sink_lag_records{sink="otlp"}')).toBeGreaterThan(0)
    expect(await metric(gateway.adminPort, 'sallyport_audit_sink_delivered_records{sink="hook"}')).toBeGreaterThan(0)
    const events = hook.requests.flatMap(
      ({ body }) => (JSON.parse(body) as { events: { metadata: { sequence: number } }[] }).events,
    )
    expect(events.map(({ metadata }) => metadata.sequence)).toEqual(events.map((_event, index) => index + 1))
    expect(JSON.stringify([gateway.audit(), hook.requests])).not.toContain(SECRET)
  } finally {
    await gateway.close()
  }
  const sent = hook.requests.flatMap(({ body }) => (JSON.parse(body) as { events: { message?: string }[] }).events)
  // The lines of the stop are sent too.
  expect(sent.slice(-2).map(({ message }) => message)).toEqual(['stop', 'checkpoint'])
})

it('a gateway tells of a canary host', async () => {
  const folder = makeFolder()
  const secretFile = join(folder, 'secret')
  writeFileSync(secretFile, SECRET)
  const hook = await startReceiver()
  const gateway = await startTestGateway({
    audit: { alerts: { webhook: { url: hook.url, secretFile }, canaryHosts: ['canary.example.test'] } },
  })
  try {
    const token = await gateway.token({ egress: { kind: 'deny-all' } })
    expect(await get(gateway.port, `Bearer ${token}`, 'http://canary.example.test/')).toBe(403)
    await until(() => hook.requests.length > 0, 'the alert')
    expect(JSON.parse(hook.requests[0]?.body ?? '')).toMatchObject({
      kind: 'canary',
      host: 'canary.example.test',
      sandbox: 'sbx_test',
    })
    expect(hook.requests[0]?.body).not.toContain(token)
  } finally {
    await gateway.close()
  }
})

it('files go while the log is written, and one that was changed is told of', async () => {
  const [state, folder] = [makeFolder(), makeFolder()]
  const hook = await startReceiver()
  const secretFile = join(state, 'secret')
  writeFileSync(secretFile, SECRET)
  writeFileSync(join(state, 'audit-key.public.jwk'), testKey.publicJwk)
  const parsed = parseConfig({
    audit: {
      path: folder,
      retention: { maxBytes: 20_000 },
      alerts: { webhook: { url: hook.url, secretFile } },
    },
  })
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.faults))
  const service = await openAuditService({
    settings: parsed.config.audit,
    state,
    instance: 'gw',
    version: '1',
    logger: recordingLogger(),
    retentionMs: 20,
  })
  const log = await openTestLog(folder, { maxFileBytes: 9000, checkpointMs: 5, onCheckpoint: service.onCheckpoint })
  onTestFinished(() => service.close())
  for (const entry of decisions(8)) await log.write(entry)
  const [first = ''] = logFiles(folder)
  writeFileSync(first, readFileSync(first, 'latin1').replace('"tenant":"acme"', '"tenant":"evil"'), 'latin1')
  for (const entry of decisions(60)) await log.write(entry)
  service.start(log)
  await until(() => !existsSync(first), 'the first file to go')
  await until(() => hook.requests.some(({ body }) => body.includes('"kind":"chain"')), 'the alert')
  await log.close()
  await service.close()
  expect(await verifyAudit({ paths: [folder], keys: [testKey.key] })).toMatchObject({ ok: true })
})
