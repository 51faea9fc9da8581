import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { findOutboundCalls } from './outbound-calls.ts'

const ROOT = path.join(import.meta.dirname, '../..')

/** Every use of the network that is allowed, where it is, and why. What is no longer there must go from here too. */
const ALLOWED: Readonly<Record<string, readonly [uses: readonly string[], why: string]>> = {
  'proxy/admin/console-files.ts': [
    ['child_process.execFile'],
    'in a checkout: builds the console with the bundler of the development packages',
  ],
  'proxy/console/api.ts': [['fetch'], 'runs in a browser: asks the control API that the page came from'],
  'proxy/audit/sinks/post.ts': [['fetch'], 'sends audit lines to the sinks that the operator named'],
  'proxy/audit/sinks/syslog-connection.ts': [
    ['net.connect', 'tls.connect'],
    'sends audit lines to the syslog receiver that the operator named',
  ],
  'proxy/egress/dial.ts': [['connect6', 'createTcp', 'net.connect'], 'the one place that opens what a permit allows'],
  'proxy/egress/dns-servers.ts': [
    ['dns.Resolver', 'dns.Resolver'],
    'asks the DNS servers that the operator named, or the system',
  ],
  'proxy/egress/upstream.ts': [['tls.connect'], "TLS over a socket that dial opened to the operator's own proxy"],
  'proxy/policy/tenant-resolver.ts': [['fetch'], "asks the operator's service for a tenant's policy"],
  'proxy/tokens/fetch-document.ts': [['fetch'], 'fetches the key sets of issuers that the operator named'],
  'proxy/relay/handle-wire.ts': [['net.Socket'], 'makes a socket of a handle that is connected already'],
  'proxy/relay/node-handles.ts': [
    ['connect6', 'process.binding'],
    'reaches into Node for handles; whoever makes one to connect is found by `createTcp`',
  ],
  'proxy/relay/listen-unix.ts': [
    ['net.connect'],
    'asks whether somebody still answers on a unix socket that is in the way',
  ],
  'proxy/node-http.ts': [['getBuiltinModule'], 'the module `http`; what is done with it is found where it is imported'],
  'proxy/workers/worker-child.ts': [['child_process.spawn'], "starts the gateway's own workers"],
  'proxy/workers/worker-process.ts': [
    ['net.Socket'],
    'the channel to the supervising process, which it inherits; connects nothing',
  ],
  'proxy/dialects/exchange.ts': [
    ['http.request'],
    'writes a request to a socket that dial opened; its agent opens none',
  ],
}

/** The same for the provider, which starts programs by its nature; the network it uses for what is its own and for nothing that a sandbox names. */
const ALLOWED_IN_PROVIDER: Readonly<Record<string, readonly [uses: readonly string[], why: string]>> = {
  'provider/backends/container-link.ts': [
    ['import(?)', 'net.connect', 'net.connect'],
    'runs inside a container: joins the two channels to the worker',
  ],
  'provider/backends/control-socket.ts': [['net.connect'], "opens a worker's unix socket"],
  'provider/backends/e2b/gateway-address.ts': [
    ['dns/promises.lookup'],
    "finds the address of the operator's gateway, which a machine of E2B is then held to",
  ],
  'provider/backends/link-host.ts': [['net.connect'], "the host's end of a container's channels"],
  'provider/backends/link-share.ts': [['net.connect'], "the host's end of a container's channels, for other processes"],
  'provider/backends/loopback-relay.ts': [['net.connect'], "carries a loopback port to the gateway's unix socket"],
  'provider/backends/microvm/attach-machine.ts': [
    ['net.connect'],
    'connects to the relay of a machine, by its unix socket',
  ],
  'provider/backends/microvm/firecracker-api.ts': [['http.request'], "drives Firecracker by its API's unix socket"],
  'provider/backends/platform/exchange.ts': [
    ['http.*', 'https.*'],
    'asks the API of a platform, at an address of the operator',
  ],
  'provider/backends/platform/worker-link.ts': [
    ['net.connect'],
    'opens streams to a worker, at the address that its platform says',
  ],
  'provider/conformance/egress.ts': [['dgram.createSocket'], 'a service of the host that no sandbox may reach'],
  'provider/egress/control-client.ts': [
    ['http.request', 'https.request'],
    "asks the control API of the host's own gateway for listeners",
  ],
  'provider/node-http.ts': [
    ['getBuiltinModule'],
    'the module `http`; what is done with it is found where it is imported',
  ],
  'provider/worker-client/exchange.ts': [['http.request'], 'writes a request to a socket that a backend opened'],
  'provider/worker/forward.ts': [['net.connect'], "inside: carries a loopback port to the gateway's unix socket"],
  'provider/worker/probe.ts': [
    ['import(dgram)', 'net.connect', 'net.connect'],
    'inside: tries what must fail, and the gateway',
  ],
  'provider/worker/token-relay.ts': [
    ['http.request', 'net.connect', 'tls.connect'],
    "connects to the operator's gateway elsewhere, and to nothing else",
  ],
  'provider/worker/run.ts': [['net.Socket', 'net.Socket'], 'the pipes of a command'],
}

describe('only dial dials', () => {
  test('nothing else in the gateway opens an outbound connection', () => {
    expect(usesIn('proxy')).toEqual(usesOf(ALLOWED))
  })

  test('the provider uses the network where it says so', () => {
    const uses = Object.entries(usesIn('provider')).map(
      ([file, found]) => [file, found.filter((use) => !use.includes('child_process'))] as const,
    )
    expect(Object.fromEntries(uses.filter(([, found]) => found.length > 0))).toEqual(usesOf(ALLOWED_IN_PROVIDER))
  })

  test('policies use no network at all', () => {
    for (const file of sources('policies')) {
      const text = fs.readFileSync(path.join(ROOT, file), 'utf8')
      expect([file, findOutboundCalls(text), /from '(?:node:[a-z_/]+)'/.exec(text)?.[0]]).toEqual([file, [], undefined])
    }
  })

  test('dialling without a permit is for the upstream proxy alone', () => {
    const users = sources('proxy', 'provider').filter((file) =>
      fs.readFileSync(path.join(ROOT, file), 'utf8').includes('dialOperatorProxy'),
    )
    expect(users).toEqual(['proxy/egress/dial.ts', 'proxy/egress/upstream.ts'])
  })

  test('TLS to the upstream proxy runs over the socket that dial opened', () => {
    const text = fs.readFileSync(path.join(ROOT, 'proxy/egress/upstream.ts'), 'utf8')
    expect(text.match(/tls\.connect\(\{\s*socket,/g)).toHaveLength(1)
  })
})

describe('the check is awake', () => {
  const planted: readonly (readonly [string, string, readonly string[]])[] = [
    ['net.connect', "import net from 'node:net'\nnet.connect(443, 'evil.example.test')", ['net.connect']],
    ['without the prefix', "import * as wires from 'net'\nwires.createConnection({})", ['net.createConnection']],
    ['a named import', "import { connect as open } from 'node:tls'\nopen({})", ['tls.connect']],
    ['a default by name', "import { default as net } from 'node:net'\nnet.connect(1)", ['net.connect']],
    [
      'a socket made by hand',
      "import net from 'node:net'\nconst s = new net.Socket()\ns.connect(1)",
      ['.connect', 'net.Socket'],
    ],
    ['http.get', "import http from 'node:http'\nhttp.get('http://evil.example.test')", ['http.get']],
    ['http by the file that loads it', "import http from '../node-http.ts'\nhttp.request({})", ['http.request']],
    ['a require of our own', "createRequire(import.meta.url)('net')", ['createRequire(net)']],
    ['a require of our own, kept', 'const load = createRequire(import.meta.url)', ['createRequire']],
    ['https.request', "import https from 'node:https'\nexport const f = () => https.request({})", ['https.request']],
    ['http2', "import http2 from 'node:http2'\nhttp2.connect('https://evil.example.test')", ['http2.connect']],
    ['UDP', "import dgram from 'node:dgram'\ndgram.createSocket('udp4')", ['dgram.createSocket']],
    [
      'a look-up',
      "import dns from 'node:dns/promises'\nawait dns.lookup('evil.example.test')",
      ['dns/promises.lookup'],
    ],
    ['another program', "import { spawn } from 'node:child_process'\nspawn('curl')", ['child_process.spawn']],
    ['fetch', "await fetch('http://evil.example.test')", ['fetch']],
    ['fetch as a default', 'export function load({ get = fetch } = {}) { return get }', ['fetch']],
    ['fetch of the global object', "globalThis.fetch('http://evil.example.test')", ['fetch']],
    ['a web socket', "new WebSocket('wss://evil.example.test')", ['WebSocket']],
    [
      'a client package',
      "import { request } from 'undici'\nawait request('http://evil.example.test')",
      ['import undici'],
    ],
    ['a dynamic import', "const net = await import('node:net')", ['import(net)']],
    ['an import of something unknown', 'const any = await import(name)', ['import(?)']],
    ['require', "const net = require('net')", ['import(net)']],
    ['a built-in by name', "process.getBuiltinModule('net')", ['getBuiltinModule']],
    [
      "Node's insides",
      "const { TCP } = process.binding('tcp_wrap')\nnew TCP(0).connect6(r, '::1', 443)",
      ['connect6', 'process.binding'],
    ],
    ["Node's insides, taken out", 'const { binding: open } = process', ['process.binding']],
    ['a handle of our own', "import { createTcp } from './node-handles.ts'\nconst handle = createTcp()", ['createTcp']],
    ['a module handed on', "import net from 'node:net'\nconst wires = net", ['net.*']],
  ]
  test.each(planted)('%s is found', (_sentence, source, expected) => {
    expect(findOutboundCalls(source)).toEqual(expected)
  })

  const harmless: readonly (readonly [string, string])[] = [
    ['a comment', '// net.connect(443) and fetch(url)'],
    ['a text', "export const advice = 'use fetch(url) or net.connect()'"],
    ['a type', "import type net from 'node:net'\nexport type Open = (socket: net.Socket, get: typeof fetch) => void"],
    ['a server', "import net from 'node:net'\nexport const server = net.createServer()"],
    ['reading an address', "import { isIP } from 'node:net'\nexport const is = isIP('::1')"],
    ["a member of one's own", 'export const run = (options: { fetch: () => void }) => options.fetch()'],
    ['a seam by the name of fetch', 'export function load({ fetch }: { fetch: () => void }) { return fetch() }'],
    ["somebody else's connect", "import { upstream } from './upstream.ts'\nupstream.connect()"],
    ['a file of the product, when it is needed', "const { main } = await import('./main.ts')"],
  ]
  test.each(harmless)('%s is not', (_sentence, source) => {
    expect(findOutboundCalls(source)).toEqual([])
  })
})

function usesIn(folder: string): Readonly<Record<string, readonly string[]>> {
  const uses = sources(folder).map(
    (file) => [file, findOutboundCalls(fs.readFileSync(path.join(ROOT, file), 'utf8'))] as const,
  )
  return Object.fromEntries(uses.filter(([, found]) => found.length > 0))
}

function usesOf(allowed: typeof ALLOWED): Readonly<Record<string, readonly string[]>> {
  return Object.fromEntries(Object.entries(allowed).map(([file, [found]]) => [file, found]))
}

function sources(...folders: readonly string[]): readonly string[] {
  return folders
    .filter((folder) => fs.existsSync(path.join(ROOT, folder)))
    .flatMap((folder) =>
      fs
        .readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .map((file) => path.posix.join(folder, file)),
    )
    .filter((file) => file.endsWith('.ts'))
    .sort()
}
