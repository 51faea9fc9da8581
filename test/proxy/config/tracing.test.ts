import { expect, test } from 'vitest'
import { parseConfig } from '../../../proxy/config/parse.ts'
import type { ConfigInput } from '../../../proxy/config/schema.ts'

const otlp = { url: 'https://collector.example/v1/traces' }

test('nothing is traced by default', () => {
  const parsed = parseConfig({})
  expect(parsed.ok && parsed.config.tracing).toEqual({ ratio: 1, maxPerSecond: 100 })
})

test('the file of the credentials is relative to the folder of the configuration', () => {
  const parsed = parseConfig(
    { tracing: { otlp: { ...otlp, authorizationFile: 'collector.token', timeoutSeconds: '3s' } } },
    { folder: '/etc/sallyport' },
  )
  expect(parsed.ok && parsed.config.tracing.otlp).toEqual({
    url: otlp.url,
    authorizationFile: '/etc/sallyport/collector.token',
    timeoutSeconds: 3,
    unsafePlainHttp: false,
  })
})

test('plain HTTP is for this machine, or for whoever says that it is meant', () => {
  expect(parseConfig({ tracing: { otlp: { url: 'http://127.0.0.1:4318/v1/traces' } } }).ok).toBe(true)
  const meant = { url: 'http://collector.example/v1/traces', unsafePlainHttp: true }
  expect(parseConfig({ tracing: { otlp: meant } }).ok).toBe(true)
})

test.each<[string, NonNullable<ConfigInput['tracing']>, string, RegExp]>([
  ['plain HTTP elsewhere', { otlp: { url: 'http://collector.example/' } }, 'tracing.otlp.url', /without TLS/],
  ['no URL', { otlp: { url: 'collector:4318' } }, 'tracing.otlp.url', /not served here|not a URL/],
  ['credentials in the URL', { otlp: { url: 'https://u:marker@x.example/' } }, 'tracing.otlp.url', /credentials/],
  ['more than all', { otlp, ratio: 1.5 }, 'tracing.ratio', /1/],
  ['less than none', { otlp, ratio: -0.1 }, 'tracing.ratio', /0/],
  ['no trace a second', { otlp, maxPerSecond: 0 }, 'tracing.maxPerSecond', /1/],
  ['a key that is none', { otlp: { ...otlp, header: 'x' } as never }, 'tracing.otlp.header', /./],
])('%s stops the start, and says where', (_sentence, tracing, path, message) => {
  const parsed = parseConfig({ tracing })
  const faults = parsed.ok ? [] : parsed.faults
  expect(faults.map((fault) => fault.path)).toEqual([path])
  expect(faults[0]?.message).toMatch(message)
  expect(JSON.stringify(faults)).not.toContain('marker')
})

test('the environment sets it too', () => {
  const parsed = parseConfig(
    {},
    { environment: { SALLYPORT_TRACING_OTLP_URL: otlp.url, SALLYPORT_TRACING_RATIO: '0.25' } },
  )
  expect(parsed.ok && [parsed.config.tracing.otlp?.url, parsed.config.tracing.ratio]).toEqual([otlp.url, 0.25])
})
