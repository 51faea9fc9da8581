/** The configuration file, as text. */
import { parse, stringify } from 'yaml'
import { parseConfigText } from '../../../proxy/config/load.ts'
import { hold, same, type Target } from '../target.ts'

const SEEDS = [
  'policy: { ceiling: { kind: static, allowedHosts: ["*.example.com", "203.0.113.7:443"] } }\n',
  [
    'listen: { proxy: ["127.0.0.1:8080", "unix:/run/x.sock"], admin: "127.0.0.1:9090" }',
    'issuers:',
    '  - { issuer: https://issuer.example, algorithms: [ES256], jwks: https://issuer.example/jwks.json }',
    '  - { issuer: "urn:s", algorithms: [HS256], secretFile: secret }',
    'limits: { tunnels: 100, perSandbox: { tunnels: 8, newPerSecond: 10, bytesPerSecond: 10MiB } }',
    'timeouts: { headSeconds: 5, idleSeconds: 5m }',
  ].join('\n'),
  [
    'network: { allowPrivate: [10.0.0.0/8], dns: { servers: ["203.0.113.1"] }, upstream: { url: http://proxy.example:3128 } }',
    'audit: { onFailure: allow, maxFileBytes: 1MiB, retention: { maxAgeSeconds: 30d }, sinks: [{ kind: stdout }] }',
    'tracing: { otlp: { url: https://collector.example/v1/traces } }',
  ].join('\n'),
  'policy:\n  sets: { own: &own [a.example, "*.b.example"] }\n  deniedHosts: *own\n  tenants:\n    acme: { kind: static, mode: report, allowedHosts: ["@own"] }\n',
  '{"log":{"level":"info"},"state":"state","admin":{"open":["metrics"]}}',
]
const WORDS = [
  ...[
    '&a ',
    '*a',
    '<<: ',
    '? ',
    '- ',
    ': ',
    '\n',
    '\n  ',
    '{',
    '}',
    '[',
    ']',
    '"',
    "'",
    '|\n',
    '>-\n',
    '---\n',
    '...\n',
    '#',
    '!!binary ',
    '!!js/function ',
    '!a ',
  ],
  ...[
    '%YAML 1.1\n',
    'null',
    '~',
    'true',
    '.inf',
    '.nan',
    '0x10',
    '1e9',
    '2026-01-01',
    '10MiB',
    '5m',
    '30d',
    'kind: ',
    'static',
    'allowedHosts: ',
  ],
  ...[
    'listen: ',
    'issuers: ',
    'policy: ',
    'network: ',
    'limits: ',
    'audit: ',
    'ceiling: ',
    'tenants: ',
    '__proto__: ',
    'constructor: ',
    'toString: ',
  ],
]

/** Opens the target. */
export function configuration(): Target {
  return {
    name: 'configuration',
    maxBytes: 16 * 1024,
    maxCpuMs: 3000,
    seeds: SEEDS.map((text) => Buffer.from(text)),
    words: WORDS,
    run: (input) => {
      const text = input.toString('utf8')
      const read = parseConfigText(text, {})
      if (!read.ok) {
        hold(read.faults.length > 0, 'a configuration is refused and nothing is wrong with it')
        for (const { message } of read.faults)
          hold(message !== '' && message.length < 4096, 'a fault is not told, or at length', () => message.length)
        return
      }
      same(parseConfigText(text, {}), read, 'the same text means something else')
      const plain: unknown = parse(text, { maxAliasCount: 100 })
      const written = stringify(plain, { aliasDuplicateObjects: false })
      same(parseConfigText(written, {}), read, 'the same values, written anew, mean something else')
      if (plain !== null)
        same(parseConfigText(JSON.stringify(plain), {}), read, 'the same values in JSON mean something else')
    },
  }
}
