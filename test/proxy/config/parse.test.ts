import { describe, expect, test } from 'vitest'
import { faultText } from '../../../proxy/config/faults.ts'
import { parseConfigText } from '../../../proxy/config/load.ts'
import { parseConfig, type ParseOptions } from '../../../proxy/config/parse.ts'
import type { Config, ConfigInput } from '../../../proxy/config/schema.ts'

const ISSUER = { issuer: 'https://host.example', algorithms: ['ES256'], jwks: 'jwks.json' } as const

function read(document: ConfigInput, options?: ParseOptions): Config {
  const result = parseConfig(document, options)
  if (result.ok) return result.config
  throw new Error(result.faults.map((fault) => faultText(fault)).join('\n'))
}

function faultsOf(document: unknown, options?: ParseOptions): string[] {
  const result = parseConfig(document, options)
  return result.ok ? [] : result.faults.map((fault) => faultText(fault))
}

describe('a configuration that is right', () => {
  test('an empty file is a gateway that lets nothing out', () => {
    const config = read({})
    expect(config.policy.ceiling).toEqual({ kind: 'deny-all', mode: 'enforce' })
    expect(config.listen.proxy).toEqual([{ kind: 'tcp', host: '127.0.0.1', port: 3128 }])
    expect(config.listen.admin).toEqual({ kind: 'tcp', host: '127.0.0.1', port: 9090 })
    expect(config.audit).toMatchObject({ onFailure: 'deny', path: './.sallyport/audit' })
    expect(config.network.allowPrivate).toEqual([])
    expect(config.sni.ports).toEqual([443])
  })

  test('an empty document reads like an empty section', () => {
    expect(parseConfigText('# nothing\n', {})).toEqual(parseConfig({}))
  })

  test('units of time and size are read', () => {
    const config = read({
      timeouts: { headSeconds: '500ms', idleSeconds: '5m', drainSeconds: 0, dnsSeconds: '2', connectSeconds: 1.5 },
      limits: { perSandbox: { bytesPerDay: '5GiB' }, perTenant: { bytesPerDay: '1.5 MB' } },
      audit: { maxFileBytes: 8192 },
    })
    expect(config.timeouts).toEqual({
      headSeconds: 0.5,
      idleSeconds: 300,
      drainSeconds: 0,
      dnsSeconds: 2,
      connectSeconds: 1.5,
    })
    expect(config.limits.perSandbox.bytesPerDay).toBe(5 * 1024 ** 3)
    expect(config.limits.perTenant.bytesPerDay).toBe(1_500_000)
    expect(config.audit.maxFileBytes).toBe(8192)
  })

  test.each<[string, unknown]>([
    ['[::1]:3128', { kind: 'tcp', host: '::1', port: 3128 }],
    ['0.0.0.0:0', { kind: 'tcp', host: '0.0.0.0', port: 0 }],
    ['localhost:8080', { kind: 'tcp', host: '127.0.0.1', port: 8080 }],
    ['unix:/run/sallyport.sock', { kind: 'unix', path: '/run/sallyport.sock' }],
  ])('%s is an address to listen on', (proxy, expected) => {
    expect(read({ listen: { proxy } }).listen.proxy).toEqual([expected])
  })

  test('a gateway inside another program may have no listener of its own', () => {
    expect(read({ listen: { proxy: 'off', admin: 'off' } }).listen).toMatchObject({ proxy: [], admin: undefined })
  })

  test('several listen addresses are a list, and the admin listener can be turned off', () => {
    const { listen } = read({ listen: { proxy: ['127.0.0.1:1', 'unix:a.sock'], admin: 'off' } })
    expect(listen.proxy).toHaveLength(2)
    expect(listen.admin).toBeUndefined()
  })

  test('relative paths start from the folder of the file; URLs and absolute paths stay', () => {
    const config = read(
      {
        listen: {
          proxy: 'unix:run/p.sock',
          admin: 'unix:/a.sock',
          tls: { cert: 'gw.pem', key: '/k.pem', clientCa: 'ca.pem' },
        },
        issuers: [
          ISSUER,
          { ...ISSUER, issuer: 'b', jwks: 'https://host.example/jwks.json' },
          { issuer: 'c', algorithms: ['HS256'], secretFile: 's' },
        ],
        network: { upstream: { url: 'http://127.0.0.1:8080', credentialsFile: 'up' } },
      },
      { folder: '/etc/sallyport' },
    )
    expect(config.listen.proxy).toEqual([{ kind: 'unix', path: '/etc/sallyport/run/p.sock' }])
    expect(config.listen.admin).toEqual({ kind: 'unix', path: '/a.sock' })
    expect(config.listen.tls).toMatchObject({
      cert: '/etc/sallyport/gw.pem',
      key: '/k.pem',
      clientCa: '/etc/sallyport/ca.pem',
    })
    expect(config.issuers.map((issuer) => issuer.jwks ?? issuer.secretFile)).toEqual([
      '/etc/sallyport/jwks.json',
      'https://host.example/jwks.json',
      '/etc/sallyport/s',
    ])
    expect(config.network.upstream).toEqual({
      url: 'http://127.0.0.1:8080',
      credentialsFile: '/etc/sallyport/up',
      resolve: 'here',
    })
    expect(config.state).toBe('/etc/sallyport/.sallyport')
    expect(config.audit.path).toBe('/etc/sallyport/.sallyport/audit')
  })

  test('the audit folder follows the state folder', () => {
    expect(read({ state: '/var/lib/sallyport/' }).audit.path).toBe('/var/lib/sallyport/audit')
    expect(read({ state: '/s', audit: { path: '/a' } }).audit.path).toBe('/a')
  })

  test('one fixed answer for a host may stand without a list', () => {
    expect(read({ network: { hosts: { 'db.internal': '10.0.0.1' } } }).network.hosts).toEqual({
      'db.internal': ['10.0.0.1'],
    })
  })
})

describe('a configuration that is wrong', () => {
  test.each<[string, unknown, unknown]>([
    ['an unknown key is named, with what was meant', { listn: {} }, 'listn: unknown key; did you mean `listen`?'],
    [
      'an unknown key deep in a list',
      { issuers: [{ ...ISSUER, audiance: 'x' }] },
      'issuers[0].audiance: unknown key; did you mean `audience`?',
    ],
    [
      "another gateway's spelling",
      { policy: { tenants: { a: { kind: 'static', allowedHosts: [], denied_hosts: [] } } } },
      'policy.tenants.a.denied_hosts: unknown key; did you mean `deniedHosts`?',
    ],
    [
      "another gateway's word",
      { issuers: [{ ...ISSUER, jwks_uri: 'x' }] },
      'issuers[0].jwks_uri: unknown key; did you mean `jwks`?',
    ],
    [
      'an unknown key that is like nothing lists what is known',
      { audit: { zzzzzzzz: 1 } },
      'audit.zzzzzzzz: unknown key; known here: `path`, `onFailure`, `sync`, `maxFileBytes`, `instance`, `sinks`, `retention`, `alerts`',
    ],
    [
      'a choice',
      { audit: { onFailure: 'denny' } },
      'audit.onFailure: expected one of `deny`, `allow`; found `denny`; did you mean `deny`?',
    ],
    [
      'a kind of policy',
      { policy: { ceiling: { kind: 'statik' } } },
      'policy.ceiling.kind: expected one of `deny-all`, `allow-all`, `static`, `named`; found `statik`; did you mean `static`?',
    ],
    [
      'a kind that is missing',
      { policy: { ceiling: {} } },
      'policy.ceiling.kind: is required: one of `deny-all`, `allow-all`, `static`, `named`',
    ],
    ['text for a number', { limits: { tunnels: 'many' } }, 'limits.tunnels: expected a number, found `many`'],
    ['a fraction for a count', { limits: { tunnels: 1.5 } }, 'limits.tunnels: expected a whole number, found `1.5`'],
    ['zero tunnels', { limits: { tunnels: 0 } }, 'limits.tunnels: must be at least 1'],
    ['a section that is a list', { limits: [] }, 'limits: expected a section, found a list'],
    ['a section that is empty', { limits: null }, 'limits: expected a section, found an empty value'],
    ['a document that is a list', [], 'expected a section, found a list'],
    ['a document that is text', 'listen', 'expected a section, found `listen`'],
    [
      'an infinite time',
      { timeouts: { idleSeconds: Infinity } },
      'timeouts.idleSeconds: expected seconds, found `Infinity`; write `10`, `10s`, `500ms`, `5m` or `1h`',
    ],
    [
      'a time in unknown units',
      { timeouts: { idleSeconds: '5 weeks' } },
      'timeouts.idleSeconds: expected seconds, found `5 weeks`; write `10`, `10s`, `500ms`, `5m` or `1h`',
    ],
    [
      'a time of zero',
      { timeouts: { headSeconds: 0 } },
      'timeouts.headSeconds: must be between 0.1 and 300 seconds, found `0`',
    ],
    [
      'a size in unknown units',
      { audit: { maxFileBytes: '5 gigs' } },
      'audit.maxFileBytes: expected a size, found `5 gigs`; write bytes or `64MiB`, `5GiB`, `1GB`',
    ],
    [
      'a bare port',
      { listen: { proxy: ':3128' } },
      'listen.proxy: `:3128` is not an address to listen on; write `address:port` or `unix:/path`; did you mean `127.0.0.1:3128`?',
    ],
    [
      'a port as a number',
      { listen: { proxy: 3128 } },
      'listen.proxy: expected `address:port` such as `127.0.0.1:3128`, `unix:/path`, a list of them, or `off`',
    ],
    [
      'a client certificate that is required, and nobody who could have signed it',
      { listen: { tls: { cert: 'c', key: 'k', clientCertificate: 'required' } } },
      'listen.tls.clientCertificate: `required` needs `clientCa`: the authorities whose certificates are accepted',
    ],
    [
      'a name that can be no file name',
      { audit: { instance: 'a/b' } },
      'audit.instance: expected 64 letters, digits, dots, hyphens and underscores at most, with a letter or digit at both ends',
    ],
    [
      'a kind in the place of its policy',
      { policy: { ceiling: 'allow-all' } },
      'policy.ceiling: expected a section, found `allow-all`; did you mean `{ kind: allow-all }`?',
    ],
    [
      'an entry in the place of a list',
      { policy: { deniedHosts: 'evil.example.com' } },
      'policy.deniedHosts: expected a list, found `evil.example.com`; did you mean `[evil.example.com]`?',
    ],
    [
      'a port beyond the last',
      { listen: { proxy: '127.0.0.1:65536' } },
      'listen.proxy: `127.0.0.1:65536` is not an address to listen on; write `address:port` or `unix:/path`',
    ],
    [
      'a name to listen on',
      { listen: { admin: 'gw.example:9090' } },
      'listen.admin: `gw.example:9090` is not an address to listen on; write `address:port` or `unix:/path`',
    ],
    ['an empty list of listeners', { listen: { proxy: [] } }, 'listen.proxy: must not be an empty list'],
    [
      'the admin listener on the port of the proxy',
      { listen: { proxy: '0.0.0.0:80', admin: '127.0.0.1:80' } },
      'listen.admin: the admin listener must not share the port 80 with the proxy',
    ],
    [
      'a shared store',
      { state: 'redis://127.0.0.1' },
      'state: only a folder can hold the state; a shared store is not served by this version',
    ],
    [
      'an issuer without keys',
      { issuers: [{ issuer: 'a', algorithms: ['ES256'] }] },
      'issuers[0]: exactly one of `jwks`, `secretFile` and `stateKeys` says where the keys are; found 0',
    ],
    [
      'an issuer with two sources of keys',
      { issuers: [{ ...ISSUER, stateKeys: true }] },
      'issuers[0]: exactly one of `jwks`, `secretFile` and `stateKeys` says where the keys are; found 2',
    ],
    [
      'a secret beside an asymmetric algorithm',
      { issuers: [{ issuer: 'a', algorithms: ['HS256', 'ES256'], secretFile: 's' }] },
      'issuers[0].algorithms: `HS256` must not stand beside an asymmetric algorithm',
    ],
    [
      'a secret for an asymmetric algorithm',
      { issuers: [{ issuer: 'a', algorithms: ['ES256'], secretFile: 's' }] },
      'issuers[0].secretFile: `HS256` and `secretFile` belong together',
    ],
    [
      'an algorithm that is none',
      { issuers: [{ ...ISSUER, algorithms: ['none'] }] },
      'issuers[0].algorithms[0]: expected one of `EdDSA`, `ES256`, `RS256`, `PS256`, `HS256`; found `none`',
    ],
    [
      'an issuer that stands there twice',
      { issuers: [ISSUER, ISSUER] },
      'issuers[1].issuer: `https://host.example` is configured twice',
    ],
    [
      'keys over plain HTTP',
      { issuers: [{ ...ISSUER, jwks: 'http://host.example/jwks.json' }] },
      'issuers[0].jwks: `http://host.example/jwks.json` is fetched without TLS, so whoever sits between decides what it says; did you mean `https://host.example/jwks.json`?',
    ],
    [
      'a tenant resolver without a place for the tenant',
      { policy: { tenantResolver: { url: 'http://127.0.0.1:7000/policy' } } },
      'policy.tenantResolver.url: the URL must hold `{tenant}`; did you mean `http://127.0.0.1:7000/policy/{tenant}`?',
    ],
    [
      'a set with a name that no entry can spell',
      { policy: { sets: { Corp: [] } } },
      'policy.sets.Corp: `Corp` can not be a name here; use lower-case letters, digits and hyphens',
    ],
    [
      'an upstream of another kind',
      { network: { upstream: 'socks5://127.0.0.1:1080' } },
      'network.upstream.url: must be `http://host:port` or `https://host:port`',
    ],
    [
      'an upstream with its password in the URL',
      { network: { upstream: 'http://u:hunter2@127.0.0.1:8080' } },
      'network.upstream.url: credentials do not belong into the URL; put them into `credentialsFile`',
    ],
    [
      'a range with host bits',
      { network: { allowPrivate: ['10.20.0.1/16'] } },
      'network.allowPrivate[0]: `10.20.0.1/16` is refused: a range is written without host bits, spare zeros or upper case; write `10.20.0.0/16`',
    ],
    [
      'a NAT64 prefix of another length',
      { network: { nat64Prefixes: ['2001:db8::/44'] } },
      'network.nat64Prefixes[0]: `2001:db8::/44` is refused: a NAT64 prefix is IPv6 of length 32, 40, 48, 56, 64 or 96',
    ],
    [
      'an entry of a tenant',
      { policy: { tenants: { acme: { kind: 'static', allowedHosts: ['ok.example', '*'] } } } },
      'policy.tenants.acme.allowedHosts[1]: `*` is refused: a star alone covers everything',
    ],
    [
      'an entry with a scheme, and its right form',
      { policy: { ceiling: { kind: 'static', allowedHosts: ['https://ok.example'] } } },
      'policy.ceiling.allowedHosts[0]: `https://ok.example` is refused: an entry has no scheme; write `ok.example`',
    ],
    [
      'an entry of the denied hosts',
      { policy: { deniedHosts: ['.x.example'] } },
      'policy.deniedHosts[0]: `.x.example` is refused: a name has no leading dot; write `*.x.example`',
    ],
    [
      'an entry of a set, told once however often the set is used',
      { policy: { sets: { corp: ['a b'] }, ceiling: { kind: 'static', allowedHosts: ['@corp'] } } },
      'policy.sets.corp[0]: `a b` is refused: an entry has no spaces',
    ],
    [
      'an entry that is exempt from the comparison of names',
      { sni: { off: ['x.example:0'] } },
      expect.stringContaining('sni.off[0]: `x.example:0` is refused: '),
    ],
    [
      'a set that is not there',
      { policy: { ceiling: { kind: 'static', allowedHosts: ['@nowhere'] } } },
      expect.stringContaining('policy.ceiling.allowedHosts[0]: `@nowhere` is refused: no set has this name'),
    ],
    [
      'a set with the name of one that ships',
      { policy: { sets: { github: [] } } },
      'policy.sets.github: `github` is the name of a shipped set; choose another',
    ],
    [
      'a set with the name of one of this machine',
      { policy: { sets: { npm: [] } } },
      'policy.sets.npm: `npm` is the name of a set that is read from this machine; choose another',
    ],
    [
      'a named policy that is not there',
      { policy: { named: { base: { kind: 'allow-all' } }, tenants: { acme: { kind: 'named', name: 'bse' } } } },
      'policy.tenants.acme.name: no policy in `policy.named` is called `bse`; did you mean `base`?',
    ],
    [
      'a resolver by name',
      { network: { resolvers: ['dns.example'] } },
      'network.resolvers[0]: `dns.example` is not a DNS server; write `10.0.0.2`, `10.0.0.3:5353` or `[2001:db8::53]:53`',
    ],
    [
      'a fixed host whose address is none',
      { network: { hosts: { 'db.internal': ['010.0.0.1'] } } },
      'network.hosts["db.internal"][0]: `010.0.0.1`: not an IP address; write `203.0.113.7` or `2001:db8::7`',
    ],
  ])('%s', (_name, document, expected) => {
    expect(faultsOf(document)).toEqual([expected])
  })

  test('a URL with credentials is refused without repeating them', () => {
    const text = faultsOf({
      issuers: [{ ...ISSUER, jwks: 'https://u:hunter2@host.example/' }],
      network: { upstream: 'http://u:hunter2@h:1' },
    }).join('\n')
    expect(text).toContain('must not carry credentials')
    expect(text).not.toContain('hunter2')
  })

  test('all faults come at once: of shape, of meaning, and those that only show beside others', () => {
    const faults = faultsOf({
      listn: {},
      listen: { proxy: '127.0.0.1:80', admin: '127.0.0.1:80', tlss: {} },
      state: 'redis://x',
      issuers: [{ issuer: 'a', algorithms: ['ES256'], audiance: 'x' }],
      network: { allowPrivate: ['10.0.0.1/8'] },
      timeouts: { idleSeconds: 'soon' },
    })
    expect(faults.map((fault) => fault.split(': ')[0]).toSorted()).toEqual(
      [
        'issuers[0]',
        'issuers[0].audiance',
        'listen.admin',
        'listen.tlss',
        'listn',
        'network.allowPrivate[0]',
        'state',
        'timeouts.idleSeconds',
      ].toSorted(),
    )
  })

  test('a long value is cut in the message', () => {
    const [text = ''] = faultsOf({ limits: { tunnels: 'x'.repeat(5000) } })
    expect(text.length).toBeLessThan(120)
  })

  test('names of the language itself are no keys', () => {
    expect(faultsOf(JSON.parse('{"__proto__": {"listen": {}}, "constructor": 1}')).length).toBeGreaterThan(0)
    expect(({} as { listen?: unknown }).listen).toBeUndefined()
  })
})
