import { describe, expect, test } from 'vitest'
import { parseConfig } from '../../../proxy/config/parse.ts'
import type { Config } from '../../../proxy/config/schema.ts'
import { faultText } from '../../../proxy/config/faults.ts'

function read(environment: Record<string, string>, document: unknown = {}): Config {
  const result = parseConfig(document, { environment })
  if (result.ok) return result.config
  throw new Error(result.faults.map((fault) => faultText(fault)).join('\n'))
}

describe('environment overrides', () => {
  test('a variable wins over the file, and the document is left alone', () => {
    const document = { listen: { proxy: '127.0.0.1:1', admin: '127.0.0.1:2' } }
    const config = read({ SALLYPORT_LISTEN_PROXY: '127.0.0.1:3' }, document)
    expect(config.listen.proxy).toEqual([{ kind: 'tcp', host: '127.0.0.1', port: 3 }])
    expect(config.listen.admin).toMatchObject({ port: 2 })
    expect(document.listen.proxy).toBe('127.0.0.1:1')
  })

  test.each<[string, string, (config: Config) => unknown, unknown]>([
    [
      'a list by commas',
      'SALLYPORT_NETWORK_ALLOW_PRIVATE',
      (config) => config.network.allowPrivate,
      ['10.0.0.0/8', '127.0.0.0/8'],
    ],
    ['listen addresses by commas', 'SALLYPORT_LISTEN_PROXY', (config) => config.listen.proxy.length, 2],
    ['camel case', 'SALLYPORT_LIMITS_PER_SANDBOX_NEW_PER_SECOND', (config) => config.limits.perSandbox.newPerSecond, 7],
    ['a size', 'SALLYPORT_LIMITS_PER_SANDBOX_BYTES_PER_DAY', (config) => config.limits.perSandbox.bytesPerDay, 1024],
    ['a whole policy as YAML', 'SALLYPORT_POLICY_CEILING', (config) => config.policy.ceiling.kind, 'allow-all'],
    ['tenants as JSON', 'SALLYPORT_POLICY_TENANTS', (config) => Object.keys(config.policy.tenants), ['acme']],
    ['ports', 'SALLYPORT_SNI_PORTS', (config) => config.sni.ports, [443, 8443]],
    ['no ports', 'SALLYPORT_SNI_PORTS_EMPTY', (config) => config.sni.ports, []],
    ['a nested section', 'SALLYPORT_LISTEN_TLS_CERT', (config) => config.listen.tls?.cert, 'c.pem'],
    ['text that looks like a number', 'SALLYPORT_AUDIT_INSTANCE', (config) => config.audit.instance, '007'],
  ])('%s', (_name, variable, pick, expected) => {
    const values: Record<string, Record<string, string>> = {
      SALLYPORT_NETWORK_ALLOW_PRIVATE: { SALLYPORT_NETWORK_ALLOW_PRIVATE: '10.0.0.0/8, 127.0.0.0/8' },
      SALLYPORT_LISTEN_PROXY: { SALLYPORT_LISTEN_PROXY: '127.0.0.1:1,unix:/p.sock' },
      SALLYPORT_LIMITS_PER_SANDBOX_NEW_PER_SECOND: { SALLYPORT_LIMITS_PER_SANDBOX_NEW_PER_SECOND: '7' },
      SALLYPORT_LIMITS_PER_SANDBOX_BYTES_PER_DAY: { SALLYPORT_LIMITS_PER_SANDBOX_BYTES_PER_DAY: '1KiB' },
      SALLYPORT_POLICY_CEILING: { SALLYPORT_POLICY_CEILING: '{ kind: allow-all }' },
      SALLYPORT_POLICY_TENANTS: { SALLYPORT_POLICY_TENANTS: '{"acme":{"kind":"deny-all"}}' },
      SALLYPORT_SNI_PORTS: { SALLYPORT_SNI_PORTS: '443,8443' },
      SALLYPORT_SNI_PORTS_EMPTY: { SALLYPORT_SNI_PORTS: '' },
      SALLYPORT_LISTEN_TLS_CERT: { SALLYPORT_LISTEN_TLS_CERT: 'c.pem', SALLYPORT_LISTEN_TLS_KEY: 'k.pem' },
      SALLYPORT_AUDIT_INSTANCE: { SALLYPORT_AUDIT_INSTANCE: '007' },
    }
    expect(pick(read(values[variable] ?? {}))).toEqual(expected)
  })

  test('a fault names the variable', () => {
    const result = parseConfig({}, { environment: { SALLYPORT_LIMITS_TUNNELS: 'many' } })
    expect(result.ok ? [] : result.faults.map((fault) => faultText(fault, 'f.yaml'))).toEqual([
      'SALLYPORT_LIMITS_TUNNELS: limits.tunnels: expected a number, found `many`',
    ])
  })

  test('a misspelt variable stops the start', () => {
    const result = parseConfig({}, { environment: { SALLYPORT_LIMIT_TUNNELS: '5' } })
    expect(result.ok ? [] : result.faults.map((fault) => faultText(fault))).toEqual([
      'SALLYPORT_LIMIT_TUNNELS: no such setting; did you mean `SALLYPORT_LIMITS_TUNNELS`?',
    ])
  })

  test('what Kubernetes sets for a service named sallyport, and what clients use, is left alone', () => {
    const environment = {
      SALLYPORT_PORT: 'tcp://10.0.0.1:3128',
      SALLYPORT_PORT_3128_TCP_ADDR: '10.0.0.1',
      SALLYPORT_SERVICE_HOST: '10.0.0.1',
      SALLYPORT_SERVICE_PORT: '3128',
      SALLYPORT_SNI_PORT: 'tcp://10.0.0.1:1',
      SALLYPORT_TOKEN: 'x',
      SALLYPORT_CONFIG: '/etc/sallyport.yaml',
      PATH: '/bin',
    }
    expect(parseConfig({}, { environment })).toEqual(parseConfig({}))
  })
})
