/** The way out: through the gateway what the policy allows, and nothing else by any other way. */
import assert from 'node:assert/strict'
import dgram from 'node:dgram'
import { readFile } from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import type { Sandbox } from '../sandbox.ts'
import { ALLOWED_HOST, type Bench, REFUSED_HOST } from './bench.ts'
import type { ConformanceArea, ConformanceCheck } from './check.ts'
import { type Answer, askPlain, askTunnel, connectDirectly, holdTunnel, onNode, resolveNames } from './clients.ts'
import { eventually, rejectsWith } from './lifecycle.ts'

/** A cut is due within a second; a busy machine gets more to notice it. */
const CUT_WITHIN_MS = 5_000

/** Whoever is not stopped reaches nobody there: addresses of documentation and of clouds' metadata. */
const OUTSIDE = ['192.0.2.1', '169.254.169.254', '2001:db8::1', 'fd00:ec2::254']
const NAME_SERVERS = ['127.0.0.53', '127.0.0.11', '192.0.2.53']

/** Families that network namespaces do not confine, or that read what is on the wire: `FAMILY|TYPE|PROTOCOL`. */
const SOCKETS = [
  ['AF_VSOCK', 'socket|40|1'],
  ['AF_VSOCK datagrams', 'socket|40|2'],
  ['AF_PACKET', 'socket|17|3'],
  ['AF_PACKET datagrams', 'socket|17|2'],
  ['AF_ALG', 'socket|38|5'],
  ['AF_XDP', 'socket|44|3'],
  ['AF_KEY', 'socket|15|3|2'],
  ['AF_BLUETOOTH', 'socket|31|3|1'],
  ['raw IPv4', 'socket|2|3|1'],
  ['raw IPv4 with headers', 'socket|2|3|255'],
  ['raw IPv6', 'socket|10|3|58'],
] as const

const unenforced = ({ provider }: Bench): string | undefined =>
  provider.capabilities.enforcement === 'none' ? 'nothing is enforced, and `capabilities` says so' : undefined
const unprobed = (bench: Bench): string | undefined =>
  unenforced(bench) ?? (bench.subject.probe === undefined ? 'there is no probe' : undefined)

/** Runs the hostile program; returns what it found open. */
async function openWays(bench: Bench, attempts: readonly string[]): Promise<readonly string[]> {
  const sandbox = await bench.sandbox()
  await sandbox.copyIn(bench.subject.probe ?? '', 'hostile')
  const { stdout, stderr, exitCode } = await sandbox.exec('./hostile', attempts, { timeout: 120_000 })
  await sandbox.remove('hostile')
  const lines = stdout.split('\n').filter((line) => line !== '')
  assert.equal(
    lines.length,
    attempts.length,
    `the probe ended with ${exitCode} and said \`${stdout}\` and \`${stderr}\``,
  )
  return lines.filter((line) => line.startsWith('open'))
}

/** Answers on a port of every address of the host, loopback too, over TCP and UDP. Returns all of the addresses. */
async function withHostService(use: (addresses: readonly string[], port: number) => Promise<void>): Promise<void> {
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined)
    socket.end('reached the host\n')
  })
  // A host without IPv6 has no `::`.
  const port = await listenOn(server, '::').catch(() => listenOn(server, '0.0.0.0'))
  const isBoth = net.isIPv6((server.address() as net.AddressInfo).address)
  const datagrams = dgram.createSocket(isBoth ? 'udp6' : 'udp4')
  datagrams.on('message', (_message, peer) => datagrams.send('reached the host', peer.port, peer.address))
  await new Promise<void>((resolve) => datagrams.bind(port, resolve))
  const addresses = Object.values(os.networkInterfaces()).flatMap((all) =>
    (all ?? []).map((each) => each.address).filter((each) => !each.startsWith('fe80')),
  )
  try {
    await use([...new Set(['127.0.0.1', ...addresses])], port)
  } finally {
    datagrams.close()
    await new Promise((resolve) => server.close(resolve))
  }
}

function listenOn(server: net.Server, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, host, () => {
      server.off('error', reject)
      resolve((server.address() as net.AddressInfo).port)
    })
  })
}

/** Fails unless none of the addresses can be connected to. */
async function noneReached(bench: Bench, targets: readonly (readonly [host: string, port: number])[]): Promise<void> {
  const outcomes = await connectDirectly(bench, await bench.sandbox(), targets)
  assert.deepEqual(targets.filter((_target, index) => outcomes[index] === 'connected').map((target) => target.join(' ')), []) // prettier-ignore
}

/** By policy; with the reason, where the client itself hears the gateway. */
function refused({ provider }: Bench, answer: Answer, reason: string, message?: string): void {
  if (provider.capabilities.transparentEgress === true) {
    assert.equal(answer.status, 0, message)
    return
  }
  assert.partialDeepStrictEqual(answer, { status: 403, reason }, message)
}

const through: readonly ConformanceCheck[] = [
  {
    name: 'an allowed host is reached, by CONNECT and by a plain request',
    run: async (bench) => {
      const sandbox = await bench.sandbox()
      const target = `${ALLOWED_HOST}:${bench.origin.port}`
      assert.deepEqual(await askTunnel(bench, sandbox, target), { status: 200, body: 'origin' })
      assert.deepEqual(await askPlain(bench, sandbox, target), { status: 200, body: 'origin' })
    },
  },
  {
    name: 'a refused host is refused, with the reason',
    run: async (bench) => {
      const sandbox = await bench.sandbox()
      for (const ask of [askTunnel, askPlain]) {
        const answer = await ask(bench, sandbox, `${REFUSED_HOST}:${bench.origin.port}`)
        refused(bench, answer, 'host_not_allowed')
        if (answer.reason !== undefined) assert.ok(answer.body.includes('"host_not_allowed"'))
      }
    },
  },
  {
    name: 'neither metadata nor private addresses are reached through the gateway, even when all hosts are allowed',
    run: async (bench) => {
      await bench.withSandbox({ egress: { kind: 'allow-all' } }, async (sandbox) => {
        for (const target of [
          '169.254.169.254:80',
          '10.0.0.1:80',
          '[fd00:ec2::254]:80',
          '[::ffff:169.254.169.254]:80',
          '0.0.0.0:80',
        ]) {
          refused(bench, await askTunnel(bench, sandbox, target), 'address_prohibited', target)
        }
      })
    },
  },
  {
    name: 'clients are told the way, and given no credentials',
    skip: ({ provider }) =>
      provider.capabilities.tokenInEnvironment === true
        ? 'commands have a token in their environment'
        : provider.capabilities.transparentEgress === true
          ? 'commands need no way'
          : undefined,
    run: async (bench) => {
      const { stdout } = await (await bench.sandbox()).exec('env')
      const variables = new Map(
        stdout.split('\n').map((line) => [line.split('=')[0] ?? '', line.slice(line.indexOf('=') + 1)]),
      )
      for (const name of ['http_proxy', 'https_proxy', 'HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY'])
        assert.match(variables.get(name) ?? '', /^http:\/\/127\.0\.0\.1:\d+$/)
      assert.equal(variables.get('NO_PROXY'), 'localhost,127.0.0.1,::1')
      assert.equal(variables.has('SALLYPORT_TOKEN'), false)
      assert.doesNotMatch(stdout, /eyJ|:\/\/[^/\n]*@/)
    },
  },
  {
    name: 'clients that need no proxy are told of none, and given no credentials',
    skip: ({ provider }) =>
      provider.capabilities.transparentEgress === true ? undefined : 'commands are told the way to the gateway',
    run: async (bench) => {
      const { stdout } = await (
        await bench.sandbox()
      ).exec('env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; true')
      assert.doesNotMatch(stdout, /^[a-z_]*_proxy=/im)
      assert.doesNotMatch(stdout, /eyJ|sph_|:\/\/[^/\n]*@/)
    },
  },
  {
    name: 'credentials that clients are given are of their sandbox alone, and live for ten minutes at most',
    skip: ({ provider }) =>
      provider.capabilities.tokenInEnvironment === true ? undefined : 'commands have no token in their environment',
    run: async (bench) => {
      const sandbox = await bench.sandbox()
      const read = async (of: Sandbox) => {
        const token = new URL((await of.exec('echo "$https_proxy"')).stdout).password
        const claims = Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()
        const { exp } = JSON.parse(claims) as { readonly exp: number }
        return { token, claims, livesFor: exp - Date.now() / 1_000 }
      }
      const { claims, livesFor, token } = await read(sandbox)
      assert.ok(claims.includes(sandbox.id), claims)
      assert.ok(livesFor > 240 && livesFor <= 600, `it lives for ${livesFor} s`)
      await bench.withSandbox({}, async (other) => {
        const others = await read(other)
        assert.notEqual(others.token, token)
        assert.equal(others.claims.includes(sandbox.id), false)
      })
    },
  },
  {
    name: 'another policy holds for the next connection, and cuts the open one that it does not allow',
    skip: ({ provider }) => (provider.capabilities.runtimeEgressChange ? undefined : 'the policy can not be changed'),
    run: async (bench) => {
      await bench.withSandbox({}, async (sandbox) => {
        const [allowed, other] = [ALLOWED_HOST, REFUSED_HOST].map((host) => `${host}:${bench.origin.port}`) as [
          string,
          string,
        ]
        const tunnel = await holdTunnel(bench, sandbox, allowed)
        const changedMs = performance.now()
        await sandbox.setEgress({ kind: 'static', allowedHosts: [other] })
        await tunnel.cut
        assert.ok(performance.now() - changedMs < CUT_WITHIN_MS, 'the open connection was cut too late')
        refused(bench, await askTunnel(bench, sandbox, allowed), 'host_not_allowed')
        assert.equal((await askTunnel(bench, sandbox, other)).status, 200)
        await sandbox.setEgress({ kind: 'deny-all' })
        refused(bench, await askTunnel(bench, sandbox, other), 'host_not_allowed')
      })
    },
  },
  {
    name: 'destroying a sandbox cuts what it has open',
    run: async (bench) => {
      const sandbox = await bench.provider.create()
      const before = bench.origin.open()
      await holdTunnel(bench, sandbox, `${ALLOWED_HOST}:${bench.origin.port}`)
      await eventually(() => bench.origin.open() > before, 10_000, 'the tunnel is open')
      await sandbox.destroy()
      await eventually(() => bench.origin.open() <= before, CUT_WITHIN_MS, 'the origin sees it cut')
    },
  },
  {
    name: 'a policy that can not be read makes no sandbox, and changes none',
    run: async (bench) => {
      const egress = { kind: 'static', allowedHosts: ['*.com'] } as const
      await assert.rejects(bench.provider.create({ egress }), { code: 'SALLYPORT_POLICY_INVALID' })
      const sandbox = await bench.sandbox()
      await assert.rejects(sandbox.setEgress(egress), { code: 'SALLYPORT_POLICY_INVALID' })
      assert.equal((await askTunnel(bench, sandbox, `${ALLOWED_HOST}:${bench.origin.port}`)).status, 200)
    },
  },
]

const around: readonly ConformanceCheck[] = [
  {
    name: 'no connection goes straight out',
    skip: unenforced,
    run: (bench) => noneReached(bench, OUTSIDE.flatMap((host) => [[host, 80], [host, 443]] as const)), // prettier-ignore
  },
  {
    name: 'no connection reaches the ports of the host',
    skip: unenforced,
    run: (bench) =>
      withHostService(async (addresses, port) => {
        await noneReached(bench, [
          ...addresses.map((host) => [host, port] as const),
          [bench.origin.host, bench.origin.port],
        ])
      }),
  },
  {
    name: 'no datagram and no echo goes straight out, and no question for a name is answered',
    skip: unprobed,
    run: async (bench) => {
      const attempts = [
        ...OUTSIDE.flatMap((address) => [`udp|${address}|53`, `icmp-raw|${address}`, `icmp-datagram|${address}`]),
        ...NAME_SERVERS.map((address) => `dns|${address}|53`),
      ]
      assert.deepEqual(await openWays(bench, attempts), [])
    },
  },
  {
    name: 'no datagram and no echo reaches the host',
    skip: unprobed,
    run: (bench) =>
      withHostService(async (addresses, port) => {
        // An echo to loopback is answered by the sandbox itself.
        const apart = addresses.filter((address) => !/^(127\.|::1$)/.test(address))
        const attempts = [
          ...addresses.map((address) => `udp|${address}|${port}`),
          ...apart.flatMap((address) => [`icmp-raw|${address}`, `icmp-datagram|${address}`]),
        ]
        assert.deepEqual(await openWays(bench, attempts), [])
      }),
  },
  {
    name: 'no socket can be made that a network namespace does not confine',
    skip: (bench) =>
      bench.provider.capabilities.anySocket === true ? 'the sandbox has a kernel of its own' : unprobed(bench),
    run: async (bench) => {
      assert.deepEqual(await openWays(bench, SOCKETS.map(([, attempt]) => attempt)), []) // prettier-ignore
    },
  },
  {
    name: 'no name is resolved inside',
    skip: (bench) =>
      bench.provider.capabilities.transparentEgress === true
        ? 'the platform’s name server answers, and `leftOpen` says so'
        : unenforced(bench),
    run: async (bench) => {
      const outcomes = await resolveNames(bench, await bench.sandbox(), [
        'leak.sallyport.test',
        'example.com',
        ALLOWED_HOST,
      ])
      assert.deepEqual(outcomes.filter((outcome) => outcome.startsWith('answered')), []) // prettier-ignore
    },
  },
  {
    name: 'two sandboxes do not reach each other, nor each other’s channels',
    skip: unenforced,
    run: async (bench) => {
      await bench.withSandbox({}, async (other) => {
        const listen =
          'const server = net.createServer((socket) => socket.end("neighbour")); server.listen(7077, "0.0.0.0", () => console.log("ready"))'
        const neighbour = await other.spawn(
          ...onNode(bench.subject, ['-e', `const net = require("node:net"); ${listen}`]),
        )
        for await (const { data } of neighbour.output()) if (data.includes('ready')) break
        const { stdout } = await other.exec(
          ...onNode(bench.subject, [
            '-p',
            'Object.values(require("node:os").networkInterfaces()).flat().map(({ address }) => address).join(" ")',
          ]),
        )
        const addresses = [...new Set(['127.0.0.1', ...stdout.trim().split(' ')])].filter(
          (address) => net.isIP(address) !== 0,
        )
        const mine = await bench.sandbox()
        const outcomes = await connectDirectly(bench, mine, addresses.map((address) => [address, 7077] as const)) // prettier-ignore
        assert.equal(outcomes.includes('connected'), false, `${addresses.join(' ')}: ${outcomes.join(' ')}`)

        const folder = path.join(bench.subject.runtimeRoot, other.id)
        assert.notEqual((await mine.exec('ls', [folder])).exitCode, 0)
        await rejectsWith(mine.readFile(path.join(folder, 'worker-token')), 'SALLYPORT_SANDBOX_FILE_FAILED')
      })
    },
  },
  {
    name: 'the bearer of the worker is nowhere that a command can look',
    skip: unenforced,
    run: async (bench) => {
      const sandbox = await bench.sandbox()
      const token = (await readFile(path.join(bench.subject.runtimeRoot, sandbox.id, 'worker-token'), 'utf8')).trim()
      assert.ok(token.length >= 32)
      // In two halves, so that the search does not find itself.
      const search =
        'const fs = require("node:fs"); const [a, b] = args; const found = []; ' +
        // A file of the kernel has no size and may have no end: only its beginning is read.
        'const bytes = Buffer.alloc(1e6); ' +
        'const look = (file) => { let fd; try { fd = fs.openSync(file, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK); ' +
        'if (bytes.subarray(0, fs.readSync(fd, bytes)).includes(a + b)) found.push(file) } catch {} finally { if (fd !== undefined) fs.closeSync(fd) } }; ' +
        'for (const pid of fs.readdirSync("/proc").filter((name) => /^\\d+$/.test(name))) for (const name of ["environ", "cmdline"]) look("/proc/" + pid + "/" + name); ' +
        'const walk = (folder, depth) => { let names = []; try { names = fs.readdirSync(folder, { withFileTypes: true }) } catch {} ' +
        'for (const entry of names) { const each = folder + "/" + entry.name; if (entry.isFile()) look(each); else if (entry.isDirectory() && depth > 0) walk(each, depth - 1) } }; ' +
        'for (const folder of ["/run", "/tmp", "/var/run", "/dev/shm", process.cwd()]) walk(folder, 4); console.log(JSON.stringify(found))'
      const half = Math.floor(token.length / 2)
      const { stdout, stderr } = await sandbox.exec(
        ...onNode(bench.subject, [
          '-e',
          `const args = process.argv.slice(1); ${search}`,
          '--', // A half may begin with a dash.
          token.slice(0, half),
          token.slice(half),
        ]),
      )
      assert.deepEqual(JSON.parse(stdout), [], stderr)
    },
  },
]

/** The checks. */
export const egress: ConformanceArea = { name: 'egress', checks: [...through, ...around] }
