/**
 * What the init of deploy/fly holds a machine to, tried in a real network namespace against a platform that lets one port through to every address: the same
 * port of another address must be closed, and nothing that runs as the sandbox's user may open it.
 */
import http from 'node:http'
import net from 'node:net'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { createWorkerClient, type WorkerClient } from '../../../provider/worker-client.ts'
import { CHILD_ENVIRONMENT, machineRequest } from '../../../provider/backends/fly-machines/machine-request.ts'
import { compileProbe } from '../compile-probe.ts'
import { type Guest, openHostAddress, startGuest } from '../elsewhere/guest.ts'
import { describeNeeding } from '../needs.ts'
import { bootMachine, type GuestConfig, IMAGE, makeImage } from './machine-guest.ts'

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 })
const BEARER = 'b'.repeat(43)

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces', 'gcc'], 'the init of a machine on Fly', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spi-'))
  const servers: net.Server[] = []
  let gateway: Awaited<ReturnType<typeof openHostAddress>>
  let other: Awaited<ReturnType<typeof openHostAddress>>
  let port: number
  let guest: Guest
  let client: WorkerClient
  const listen = async (host: string, at: number): Promise<number> => {
    const server = http.createServer((_request, response) => response.end('reached'))
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(at, host, resolve))
    return (server.address() as net.AddressInfo).port
  }
  const configFor = (env: Readonly<Record<string, string>> = {}): GuestConfig => {
    const options = { image: IMAGE, cpuKind: 'shared', cpus: 1 } as const
    const { config } = machineRequest(options, {
      id: 'sbx_aaaaaaaaaaaaaaaa',
      labels: {},
      firstBearer: BEARER,
      gateway: { host: gateway.address, port, url: `http://[${gateway.address}]:${port}`, ca: undefined },
      memoryLimitMb: 512,
      maxProcesses: 200,
      timeoutMs: undefined,
    })
    const made = config as unknown as GuestConfig
    return { ...made, env: { ...made.env, ...env } }
  }
  const clientOf = ({ address }: Guest): WorkerClient =>
    createWorkerClient({
      token: BEARER,
      connect: () =>
        new Promise((resolve, reject) => {
          const socket = net.connect(2024, address, () => resolve(socket)).once('error', reject)
        }),
    })
  const inside = async (command: string): Promise<string> => {
    const { stdout, stderr } = await client.execute({ command, env: CHILD_ENVIRONMENT })
    return (stdout + stderr).trim()
  }
  const connect = (host: string, at: number): string => `/opt/sallyport/node -e 'require("net").connect(${at}, "${host}").setTimeout(1500, () => { console.log("timeout"); process.exit() }).on("connect", () => { console.log("connected"); process.exit() }).on("error", (e) => console.log(e.code))'` // prettier-ignore

  beforeAll(async () => {
    makeImage(folder)
    gateway = await openHostAddress(6)
    other = await openHostAddress(6)
    port = await listen(gateway.address, 0)
    await listen(other.address, port)
    guest = await bootMachine(folder, configFor(), { port }, () => undefined)
    client = clientOf(guest)
    await vi.waitFor(() => client.health(), { timeout: 30_000 })
  })
  afterAll(async () => {
    await guest.stop()
    for (const server of servers) server.close()
    await gateway.close()
    await other.close()
    fs.rmSync(folder, { recursive: true })
  })

  test('lets the gateway be reached, and the same port of no other address', async () => {
    expect(await inside(connect(gateway.address, port))).toBe('connected')
    expect(await inside(connect(other.address, port))).not.toBe('connected')
    expect(await inside(connect('fdaa::3', 53))).not.toBe('connected')
    expect(await inside(connect('192.0.2.1', 443))).not.toBe('connected')
  })

  test('is what closes it: without it the platform’s port is open to every address', async () => {
    const bare = await startGuest({
      settings: { token: BEARER, listen: { host: '::', port: 2024 }, roots: [{ path: '/workspace', writable: true }] },
      gateway: { port },
      family: 6,
    })
    const open = clientOf(bare)
    await vi.waitFor(() => open.health(), { timeout: 30_000 })
    const { tcp } = await open.probe({ tcp: [{ host: other.address, port }], udp: [], gateway: { host: '127.0.0.1', port: 1 }, destination: '0.0.0.0:1' }) // prettier-ignore
    await bare.stop()
    expect(tcp).toEqual(['connected'])
  })

  test('loads rules that the platform’s own way in shows, and that root alone could change', async () => {
    const { stdout } = await guest.exec(['nft', 'list', 'ruleset'])
    expect(stdout.match(/policy drop/g)).toHaveLength(3)
    for (const attempt of [
      'nft flush ruleset',
      'nft list ruleset',
      'ip link set lo down',
      'unshare --net true',
      'unshare --user --net true',
      'chroot / true',
      'mount -t tmpfs none /mnt',
    ])
      // prettier-ignore
      expect(await inside(`${attempt}; echo " ended with $?"`), attempt).not.toMatch(/ended with 0/)
    expect(await inside('grep -E "^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):" /proc/self/status | tr -s "\\t\\n" " "')).toBe('CapInh: 0000000000000000 CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 0000000000000000 CapAmb: 0000000000000000 NoNewPrivs: 1 Seccomp: 2') // prettier-ignore
    expect((await guest.exec(['nft', 'list', 'ruleset'])).stdout).toBe(stdout)
  })

  test('lets nobody call in but to the worker', async () => {
    const listening = await client.spawn({ command: 'exec /opt/sallyport/node -e \'require("http").createServer((q, r) => r.end("inside")).listen(8080, "::", () => console.log("ready"))\'', env: CHILD_ENVIRONMENT }) // prettier-ignore
    for await (const { data } of client.output(listening)) if (data.includes('ready')) break
    expect(await inside('/opt/sallyport/node -p "fetch(\'http://127.0.0.1:8080\').then((r) => r.text()).then(console.log), 1"')).toContain('inside') // prettier-ignore
    const outcome = await new Promise((resolve) => {
      const socket = net.connect({ host: guest.address, port: 8080 }, () => resolve('connected'))
      socket
        .setTimeout(1_500, () => resolve('timeout'))
        .on('error', (error: NodeJS.ErrnoException) => resolve(error.code))
      socket.on('close', () => undefined)
    })
    expect(outcome).not.toBe('connected')
    await client.signal(listening, 'SIGKILL')
  })

  test('leaves no way out by datagrams, raw sockets or the port of the worker as a source', async () => {
    const probe = compileProbe(folder, ['-static'])
    await client.writeFile('probe', fs.readFileSync(probe), { mode: 0o755 })
    const attempts = [`udp|${other.address}|53`, `udp|${gateway.address}|${port}`, `icmp-raw|${other.address}`, `icmp-datagram|${other.address}`, 'dns|fdaa::3|53', 'socket|40|1', 'socket|17|3', 'socket|38|5'] // prettier-ignore
    const { stdout } = await client.execute({ command: './probe', args: attempts, env: CHILD_ENVIRONMENT })
    const lines = stdout.split('\n').filter((line) => line !== '')
    expect(lines).toHaveLength(attempts.length)
    expect(lines.filter((line) => line.startsWith('open'))).toEqual([])
    const fromWorkersPort = `/usr/bin/python3 -c 'import socket\ns=socket.socket(socket.AF_INET6);s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1);s.settimeout(1.5)\ntry:\n s.bind(("${guest.address}",2024));s.connect(("${other.address}",${port}));print("connected")\nexcept OSError as e: print("closed",e)'` // prettier-ignore
    expect(await inside(fromWorkersPort)).toMatch(/^closed/)
  })

  test('leaves its settings to the worker alone', async () => {
    expect((await guest.exec(['ls', '/etc/sallyport'])).stdout).toBe('')
    expect(await inside('cat /etc/sallyport/settings.json /run/sallyport/said; ls -A /run/sallyport')).not.toContain(BEARER.slice(0, 20)) // prettier-ignore
    // Files alone of the descriptors: a pipe may have no end, and what is in one of the worker's is its own.
    const everything =
      'cat /proc/*/environ /proc/*/cmdline; for each in /proc/*/fd/*; do [ ! -f $each ] || cat $each; done'
    // All of it first: the search itself has the bearer in its command line.
    const search = `all=$({ ${everything}; } 2>/dev/null < /dev/null | tr -d '\\0'); echo "$all" | grep -ac ${BEARER.slice(0, 20)}''${BEARER.slice(20)}`
    expect(await inside(`${search} || true`)).toBe('0')
    expect(await inside('grep processes /proc/self/limits')).toMatch(/200 +200/)
  })

  test.each([
    ['no address', { SALLYPORT_GATEWAY_ADDRESS: '' }],
    ['a name', { SALLYPORT_GATEWAY_ADDRESS: 'gateway.internal' }],
    ['an address with rules in it', { SALLYPORT_GATEWAY_ADDRESS: '::1 accept' }],
    ['a port with rules in it', { SALLYPORT_GATEWAY_PORT: '1-65535' }],
    ['no number of processes', { SALLYPORT_MAX_PROCESSES: '' }],
  ])('starts nothing with %s', async (_what, env) => {
    const refused = await bootMachine(folder, configFor(env), { port }, () => undefined)
    await refused.ended
    expect(refused.exitCode()).toBe(64)
  })

  test('starts nothing where the rules are not loaded', async () => {
    // As one that the characters of an address allow, and nftables does not.
    const refused = await bootMachine(
      folder,
      configFor({ SALLYPORT_GATEWAY_ADDRESS: 'fdaa:::1' }),
      { port },
      () => undefined,
    )
    await refused.ended
    expect(refused.exitCode()).toBe(65)
  })
})
