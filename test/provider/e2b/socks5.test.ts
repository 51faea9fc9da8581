/** A machine behind E2B's own SOCKS5 proxy: what it reaches and how, what it never sees, and what an attacker would try. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { Sandbox } from '../../../provider/index.ts'
import { runElsewhere } from '../cli/run-elsewhere.ts'
import { describeNeeding } from '../needs.ts'
import { MARKER_KEY } from './bench.ts'
import { ALLOWED, REFUSED } from './own-gateway.ts'
import { openSocks5Bench, type Socks5Bench } from './socks5-bench.ts'

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })

/** Nothing came back, or the connection was closed before the hello was through. */
const NOTHING = expect.stringMatching(/^(52|35|56)$/) as string

describeNeeding(
  ['root', 'bubblewrap', 'nftables', 'namespaces', 'python3', 'curl'],
  'a machine behind E2B’s SOCKS5 proxy',
  () => {
    let bench: Socks5Bench
    let sandbox: Sandbox
    beforeAll(async () => {
      bench = await openSocks5Bench()
      sandbox = await bench.provider().create({ env: { OWN: 'value', JAVA_TOOL_OPTIONS: '-Down=1' } })
    })
    afterAll(async () => {
      await bench.close()
      expect(bench.server.faults).toEqual([])
    })

    const machineOf = ({ id }: Sandbox) => bench.server.running().find(({ metadata }) => metadata['sallyport-sandbox'] === id) // prettier-ignore
    const handleOf = (of: Sandbox): string => machineOf(of)?.network.egressProxy?.password ?? ''
    /** What curl says, or how it ended. */
    const curl = async (words: string, of = sandbox): Promise<string> => {
      const { stdout, exitCode } = await of.exec(`curl -sk --max-time 20 ${words}`)
      return exitCode === 0 ? stdout : String(exitCode)
    }

    test('everything is denied but names, and those go by the proxy', () => {
      expect(machineOf(sandbox)?.network).toEqual({
        allowOut: ['*'],
        denyOut: ['0.0.0.0/0'],
        egressProxy: { address: `${bench.address}:${bench.gateway.port}`, username: 'sandbox', password: expect.stringMatching(/^sph_[\w-]{32}$/) as string }, // prettier-ignore
        allowPublicTraffic: false,
      })
    })

    test('commands have no variables of a proxy, and those of the caller', async () => {
      const { stdout } = await sandbox.exec('env')
      expect(stdout).not.toMatch(/proxy/i)
      expect(stdout).toMatch(/^OWN=value$/m)
      expect(stdout).toMatch(/^JAVA_TOOL_OPTIONS=-Down=1$/m)
    })

    test('a plain client gets by name where the policy lets it, over HTTP and TLS', async () => {
      expect(await curl(`http://${ALLOWED}/`)).toBe(`origin of ${ALLOWED}`)
      expect(await curl(`https://${ALLOWED}/`)).toBe(`origin of ${ALLOWED}`)
      const decisions = bench.gateway.auditLines().filter(({ kind, host }) => kind === 'decision' && host === ALLOWED)
      expect(decisions.map(({ dialect, sandbox: id, port, decision }) => [dialect, id, port, decision])).toEqual([
        ['socks5', sandbox.id, 80, 'allow'],
        ['socks5', sandbox.id, 443, 'allow'],
      ])
    })

    test.each([
      ['a host that the policy does not name', `http://${REFUSED}/`],
      ['the same over TLS', `https://${REFUSED}/`],
      ['an allowed name that is sent to a refused one’s address makes no difference', `--resolve ${REFUSED}:80:203.0.113.9 http://${REFUSED}/`], // prettier-ignore
      ['a refused name in the field, whatever the address', `-H 'Host: ${REFUSED}' http://${ALLOWED}/`],
      ['an address of the metadata service', 'http://169.254.169.254/'],
      ['loopback of the gateway by its number in the field', `-H 'Host: 127.0.0.1' http://${ALLOWED}/`],
      ['no name', `-H 'Host:' http://${ALLOWED}/`],
      ['TLS without a name', 'https://203.0.113.80/'],
      ['another port, even of an allowed host', `http://${ALLOWED}:8080/`],
      ['another port with TLS', `https://${ALLOWED}:8443/`],
    ])('%s: the connection is closed without an answer', async (_what, words) => {
      expect(await curl(words)).toEqual(NOTHING)
    })

    test('the gateway itself is not reached, neither straight nor through itself', async () => {
      const { address, gateway } = bench
      expect(await curl(`http://${address}:${gateway.port}/`)).toEqual(NOTHING)
      expect(await curl(`-H 'Host: ${address}' http://${ALLOWED}/`)).toEqual(NOTHING)
      expect(await curl(`-x http://${address}:${gateway.port} http://${ALLOWED}/`)).toEqual(NOTHING)
    })

    test('what E2B opens with the names comes to the gateway too, as an address, where the policy refuses it', async () => {
      expect(await curl('http://8.8.8.8:53/')).toEqual(NOTHING)
      const [line] = bench.gateway.auditLines().filter(({ host }) => host === '8.8.8.8')
      expect(line).toMatchObject({ sandbox: sandbox.id, dialect: 'socks5', port: 53, decision: 'deny', reason: 'address_not_allowed' }) // prettier-ignore
    })

    test('datagrams get to the one name server, and nowhere else', async () => {
      const ask = (server: string) =>
      sandbox.exec('perl', ['-e', `use Socket; socket(S, AF_INET, SOCK_DGRAM, 0); connect(S, pack_sockaddr_in(53, inet_aton('${server}'))); send(S, pack('H*', '53500100000100000000000003777777076578616d706c6503636f6d0000010001'), 0); vec($r = '', fileno(S), 1) = 1; print select($r, undef, undef, 2) > 0 && sysread(S, $a, 512) ? 'answered' : 'silent'`]) // prettier-ignore
      expect((await ask('8.8.8.8')).stdout).toBe('answered')
      expect((await ask('1.1.1.1')).stdout).toBe('silent')
      expect((await ask(bench.address)).stdout).toBe('silent')
      expect(bench.provider().capabilities.leftOpen.join('\n')).toContain('8.8.8.8')
    })

    test('another policy is another handle; the one before is dead, and the next connection obeys', async () => {
      const provider = bench.provider()
      const own = await provider.create()
      const before = handleOf(own)
      expect(await bench.tryHandle(before)).toBe(0)
      await own.setEgress({ kind: 'static', allowedHosts: [REFUSED] })
      const after = handleOf(own)
      expect(after).not.toBe(before)
      expect(machineOf(own)?.network).toMatchObject({ allowOut: ['*'], denyOut: ['0.0.0.0/0'] })
      expect(await bench.tryHandle(before)).toBe('not taken')
      expect([await curl(`http://${REFUSED}/`, own), await curl(`http://${ALLOWED}/`, own)]).toEqual([`origin of ${REFUSED}`, NOTHING]) // prettier-ignore
      await own.destroy()
      expect(await bench.tryHandle(after)).toBe('not taken')
    })

    test('a handle is of its sandbox and its policy alone, and for ten minutes at most', async () => {
      const handle = handleOf(sandbox)
      const other = await bench.provider().create({ egress: { kind: 'deny-all' } })
      expect(handleOf(other)).not.toBe(handle)
      expect(await bench.tryHandle(handleOf(other))).toBe(2)
      const { control } = bench.gateway.remote
      const inspected = await fetch(`${String(control?.admin)}/v1/tokens:inspect`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ token: handle }) }) // prettier-ignore
      const { accepted, claims } = (await inspected.json()) as { readonly accepted: boolean; readonly claims: Record<string, unknown> } // prettier-ignore
      expect([accepted, claims['sub']]).toEqual([true, sandbox.id])
      expect(Number(claims['exp']) - Number(claims['iat'])).toBeLessThanOrEqual(600)
      await other.destroy()
    })

    test('a process that attaches runs commands on the same way, and nothing changes for the machine', async () => {
      const before = handleOf(sandbox)
      const again = await bench.provider().attach(sandbox.id)
      expect(await curl(`http://${ALLOWED}/`, again)).toBe(`origin of ${ALLOWED}`)
      expect((await again.exec('env')).stdout).not.toMatch(/proxy/i)
      expect(handleOf(sandbox)).toBe(before)
    })

    test('no handle and no token is in a machine, a record, a list, a log, an audit line or a metric', async () => {
      const provider = bench.provider()
      const own = await provider.create()
      await curl(`http://${ALLOWED}/`, own)
      await own.setEgress({ kind: 'deny-all' })
      const inside = await own.exec('env; cat /proc/*/environ /proc/*/cmdline ~/.sallyport/* /etc/hosts 2>/dev/null | tr "\\0" "\\n"; true') // prettier-ignore
      const folder = path.join(bench.runtimeRoot, own.id)
      const records = fs.readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
      const kept = records.map(({ parentPath, name }) => fs.readFileSync(path.join(parentPath, name), 'utf8'))
      const listed = await runElsewhere(['sandbox', 'list', '--backend', 'e2b', '--json'], { E2B_API_KEY: MARKER_KEY, E2B_API_URL: bench.server.apiUrl, E2B_SANDBOX_URL: bench.server.sandboxUrl }, bench.runtimeRoot) // prettier-ignore
      expect(listed.out).toContain(own.id)
      const seen = [listed.out, listed.err, inside.stdout, ...kept, JSON.stringify(await provider.list()), JSON.stringify(machineOf(own)?.metadata), await bench.gateway.written(), JSON.stringify(provider.capabilities)].join('\n') // prettier-ignore
      await own.destroy()
      expect(bench.handles().length).toBeGreaterThan(2)
      for (const handle of bench.handles()) expect(seen).not.toContain(handle)
      expect(seen).not.toMatch(/sph_|eyJ/)
      expect(seen).not.toContain(MARKER_KEY)
      expect(seen).toContain(own.id)
    })

    test('whoever takes over from a host that was killed gives the machine a handle of its own, which obeys from then on', async () => {
      const child = spawn(process.execPath, [path.join(import.meta.dirname, 'other-host-process.ts'), JSON.stringify(bench.options)], { stdio: ['ignore', 'pipe', 'inherit'] }) // prettier-ignore
      const exited = once(child, 'exit')
      const [line] = (await once(child.stdout, 'data')) as [Buffer]
      const id = line.toString().trim()
      const machine = () => bench.server.running().find(({ metadata }) => metadata['sallyport-sandbox'] === id)
      const former = machine()?.network.egressProxy?.password ?? ''
      child.kill('SIGKILL')
      await exited
      const own = await bench.provider().attach(id)
      const present = machine()?.network.egressProxy?.password ?? ''
      expect(present).toMatch(/^sph_/)
      expect(present).not.toBe(former)
      expect(await curl(`http://${ALLOWED}/`, own)).toBe(`origin of ${ALLOWED}`)
      await own.setEgress({ kind: 'deny-all' })
      expect(await curl(`http://${ALLOWED}/`, own)).toEqual(NOTHING)
      await own.destroy()
      // That of the dead host too.
      expect(await bench.tryHandle(former)).toBe('not taken')
      expect(await bench.tryHandle(present)).toBe('not taken')
    })

    test('a provider of the other way does not go on with one, but takes all away', async () => {
      const made = await bench.provider().create()
      const key = { issuer: 'https://own.sallyport.test', issuerKey: await otherKey() }
      const other = bench.provider({ egress: 'gateway-address' }, { ...bench.gateway.remote, ...key })
      await expect(other.attach(made.id)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED', message: expect.stringContaining('socks5-proxy') as string }) // prettier-ignore
      const handle = handleOf(made)
      expect(await other.reap({ olderThanMs: 0 })).toContain(made.id)
      expect(machineOf(made)).toBeUndefined()
      expect(await bench.tryHandle(handle)).toBe('not taken')
    })

    async function otherKey(): Promise<string> {
      const { generateKeyPairSync } = await import('node:crypto')
      const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
      return JSON.stringify({ ...privateKey.export({ format: 'jwk' }), kid: 'other', alg: 'ES256' })
    }
  },
)
