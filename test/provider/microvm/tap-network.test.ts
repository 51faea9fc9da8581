/**
 * What a guest with a network can reach: one port. Tried with a namespace in the guest's place that holds every capability, as root in a guest does, against
 * services that would answer.
 */
import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { TAP } from '../../../provider/backends/microvm/guest-protocol.ts'
import { addressNetwork, closeNetwork, makeNetwork, removeNetwork, startTapRelay } from '../../../provider/backends/microvm/tap-network.ts' // prettier-ignore
import { describeNeeding } from '../needs.ts'

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 })
const NAME = `sallyport-test-${process.pid}`
const GUEST = `${NAME}-guest`

describeNeeding(['root', 'namespaces', 'nftables'], 'the network of one machine', () => {
  let folder: string
  let gateway: net.Server
  let relay: { readonly close: () => Promise<void> }
  const services: ChildProcess[] = []

  const run = (program: string, ...args: readonly string[]): string => execFileSync(program, args, { encoding: 'utf8' })
  const inside = (namespace: string, ...command: readonly string[]): readonly [string, readonly string[]] => ['nsenter', [`--net=/run/netns/${namespace}`, '--', ...command]] // prettier-ignore
  /** From the guest's place: what came of it. */
  const attempt = async (kind: 'tcp' | 'udp' | 'ping', host: string, port: number): Promise<string> => {
    const script =
      kind === 'tcp'
        ? `import socket,sys\ns=socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET);s.settimeout(1)\ntry:\n s.connect((sys.argv[1],int(sys.argv[2])));s.sendall(b"hello\\n");print("open",s.recv(100))\nexcept OSError as e: print("closed",e)`
        : kind === 'udp'
          ? `import socket,sys\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.settimeout(1)\ntry:\n s.sendto(b"hello",(sys.argv[1],int(sys.argv[2])));print("open",s.recv(100))\nexcept OSError as e: print("closed",e)`
          : `import socket,sys,struct\ns=socket.socket(socket.AF_INET,socket.SOCK_RAW,1);s.settimeout(1)\np=struct.pack("!BBHHH",8,0,0xf7fe,0,1)\ntry:\n s.sendto(p,(sys.argv[1],0))\n while True:\n  r=s.recv(200)\n  if r[20]==0: print("open");break\nexcept OSError as e: print("closed",e)`
    const [program, args] = inside(GUEST, 'python3', '-c', script, host, String(port))
    // Not waiting in the way of what carries to the gateway, which is this process.
    return (await promisify(execFile)(program, args)).stdout.trim()
  }

  beforeAll(async () => {
    folder = fs.mkdtempSync('/tmp/spt-')
    gateway = net.createServer((socket) =>
      socket.once('data', () => socket.end('gateway\n')).on('error', () => undefined),
    )
    await new Promise<void>((resolve) => gateway.listen(path.join(folder, 'gateway.sock'), resolve))
    // As for a machine, with a cable to another namespace in the place of the tap device.
    await makeNetwork(NAME, undefined)
    run('ip', '-n', NAME, 'link', 'delete', TAP.device)
    run('ip', 'netns', 'add', GUEST)
    run('ip', '-n', NAME, 'link', 'add', TAP.device, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', GUEST)
    await addressNetwork(NAME)
    run('ip', '-n', NAME, 'link', 'set', 'lo', 'up')
    for (const command of [`address add ${TAP.guest}/${TAP.prefix} dev eth0`, 'link set eth0 up', `route add default via ${TAP.host}`]) run('ip', '-n', GUEST, ...command.split(' ')) // prettier-ignore
    for (const [script, port] of [
      ['tcp', '8080'],
      ['udp', '8081'],
    ] as const) {
      const serve =
        script === 'tcp'
          ? 'require("node:net").createServer((s) => s.on("error", () => {}).once("data", () => s.end("service"))).listen(8080, "0.0.0.0", () => console.log("ready"))'
          : 'const s = require("node:dgram").createSocket("udp4"); s.on("message", (m, p) => s.send("service", p.port, p.address)); s.bind(8081, () => console.log("ready"))'
      const [program, args] = inside(NAME, process.execPath, '-e', serve, port)
      const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
      services.push(child)
      await new Promise((resolve) => child.stdout.once('data', resolve))
    }
    relay = await startTapRelay(NAME, () => ({ path: path.join(folder, 'gateway.sock') }))
  })
  afterAll(async () => {
    await relay.close()
    for (const child of services) child.kill('SIGKILL')
    gateway.close()
    await removeNetwork(NAME)
    await removeNetwork(GUEST)
    fs.rmSync(folder, { recursive: true })
    expect(fs.readdirSync('/run/netns').filter((name) => name.startsWith(NAME))).toEqual([])
  })

  test('has one port, behind which is the gateway', async () => {
    expect(await attempt('tcp', TAP.host, 3128)).toContain('open')
    expect(await attempt('tcp', TAP.host, 3128)).toContain('gateway')
  })

  test.each([
    ['tcp', TAP.host, 8080],
    ['tcp', TAP.host, 22],
    ['tcp', '127.0.0.1', 8080],
    ['tcp', '192.0.2.1', 443],
    ['tcp', '169.254.169.254', 80],
    ['udp', TAP.host, 8081],
    ['udp', '192.0.2.53', 53],
    ['ping', TAP.host, 0],
    ['ping', '192.0.2.1', 0],
  ] as const)('closes %s to %s port %i', async (kind, host, port) => {
    expect(await attempt(kind, host, port)).toMatch(/^closed/)
  })

  test('has no IPv6 at all', () => {
    const [program, args] = inside(NAME, 'cat', '/proc/sys/net/ipv6/conf/all/disable_ipv6')
    expect(run(program, ...args).trim()).toBe('1')
    expect(run('ip', '-n', NAME, '-6', 'address')).toBe('')
  })

  test('would be open without its rules: the services do answer', async () => {
    const [program, args] = inside(NAME, 'nft', 'flush', 'ruleset')
    run(program, ...args)
    expect(await attempt('tcp', TAP.host, 8080)).toContain('service')
    expect(await attempt('udp', TAP.host, 8081)).toContain('service')
    expect(await attempt('ping', TAP.host, 0)).toBe('open')
    // And still leads nowhere: there is nothing behind it.
    expect(await attempt('tcp', '192.0.2.1', 443)).toMatch(/^closed/)
    await closeNetwork(NAME)
    expect(await attempt('tcp', TAP.host, 8080)).toMatch(/^closed/)
  })

  test('is not listened in twice, and again once the first has ended', async () => {
    const target = () => ({ path: path.join(folder, 'gateway.sock') })
    await expect(startTapRelay(NAME, target)).rejects.toMatchObject({ fault: 'network_failed' })
    await relay.close()
    expect(await attempt('tcp', TAP.host, 3128)).toMatch(/^closed/)
    relay = await startTapRelay(NAME, target)
    expect(await attempt('tcp', TAP.host, 3128)).toContain('gateway')
  })

  test('that can not be made is named', async () => {
    await expect(makeNetwork(NAME, undefined)).rejects.toMatchObject({ fault: 'network_failed', message: expect.stringContaining('File exists') as string }) // prettier-ignore
  })
})
