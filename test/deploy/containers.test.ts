/**
 * The image is built by a real engine, without a registry and with no way out but to npm's packages; then it runs as the documentation says, and the
 * compose file is brought up: the sandbox reaches what the gateway lets out, and nothing beside it.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parse } from 'yaml'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startDaemon, type TestDaemon } from '../provider/docker/daemon.ts'
import { describeNeeding } from '../provider/needs.ts'
import { createNetwork, HOST, OUTSIDE, type TestNetwork } from '../provider/network.ts'
import { importLocalBase, LOCAL_BASE } from './local-base.ts'
import { openNpmWayOut } from './npm-way-out.ts'

const ROOT = path.resolve(import.meta.dirname, '../..')
const COMPOSE = path.join(ROOT, 'deploy/compose/compose.yaml')
const IMAGE = 'sallyport-gateway'
const PORT = 7000

let network: TestNetwork
let daemon: TestDaemon
let folder: string

/** Rejects with what it printed, when it fails. */
function run(file: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
  const child: ChildProcess = spawn(file, args, { cwd: ROOT, env: { ...process.env, ...engineOf(), ...env } })
  let output = ''
  child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) =>
      code === 0 ? resolve(output) : reject(new Error(`${file} ${args.join(' ')}: ${output.slice(-4_000)}`)),
    )
  })
}
const engineOf = (): NodeJS.ProcessEnv => ({ DOCKER_HOST: `unix://${daemon.socketPath}`, DOCKER_BUILDKIT: '0' })
const docker = (...args: readonly string[]): Promise<string> => run('docker', args)

describeNeeding(['root', 'namespaces', 'docker', 'compose', 'busybox', 'socat'], 'containers', () => {
  beforeAll(async () => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-containers-'))
    network = await createNetwork()
    await network.serve('internet', {
      tcp: [
        [OUTSIDE.public4, PORT],
        [OUTSIDE.metadata, 80],
      ],
      udp: [
        [OUTSIDE.public4, PORT],
        [OUTSIDE.nameServer, 53],
      ],
    })
    await network.serve('host', { tcp: [['0.0.0.0', PORT]], udp: [['0.0.0.0', PORT]] })
    daemon = await startDaemon({ within: network.inHost, diskMb: 3_000 })
    importLocalBase(daemon.socketPath)
    const wayOut = await openNpmWayOut(daemon.inHost)
    try {
      await docker(
        ...['build', '--quiet', '--network', 'host', '--file', 'deploy/image/Dockerfile', '--tag', IMAGE],
        ...['--build-arg', `NODE_IMAGE=${LOCAL_BASE}`, '--build-arg', `https_proxy=${wayOut.url}`, '.'],
      )
    } finally {
      await wayOut.close()
    }
    await docker('create', '--name', 'unpack', IMAGE)
    await run('sh', ['-c', `docker export unpack | tar -x -C ${folder}`])
  }, 900_000)
  afterAll(async () => {
    await daemon.close()
    await network.close()
    fs.rmSync(folder, { recursive: true, force: true })
  })

  describe('the image', () => {
    test('has no shell, no package manager, and nothing that becomes another user', async () => {
      const files = fs.readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
      const places = files.map((entry) => path.join(entry.parentPath, entry.name))
      // The engine leaves empty files where it mounts its own.
      const isProgram = (file: string): boolean => (fs.statSync(file).mode & 0o111) !== 0 && fs.statSync(file).size > 0
      const inner = (file: string): string => `/${path.relative(folder, file)}`
      const programs = places.filter((file) => isProgram(file) && !file.includes('/node_modules/')).map(inner)
      expect(programs.filter((file) => !/\/(ld-linux|lib)[^/]*$/.test(file) && !file.endsWith('/bin.js'))).toEqual([
        '/usr/bin/node',
      ])
      expect(places.filter((file) => (fs.statSync(file).mode & 0o6000) !== 0)).toEqual([])
      expect(places.map(inner).filter((file) => /(^|\/)(sh|bash|dash|busybox|npm|npx|apt|dpkg)$/.test(file))).toEqual(
        [],
      )
      await expect(docker('run', '--rm', '--entrypoint', '/bin/sh', IMAGE, '-c', 'true')).rejects.toThrow(
        /no such file/,
      )
    })

    test('holds the production dependencies alone, and no source of a checkout', () => {
      const home = path.join(folder, 'usr/lib/sallyport')
      expect(fs.readdirSync(home).sort()).toEqual(['LICENSE', 'dist', 'health.mjs', 'node_modules', 'package.json'])
      const packages = installedPackages(path.join(home, 'node_modules'))
      expect(packages.map(({ name }) => name)).toContain('jose')
      for (const name of ['typescript', 'vitest', 'dockerode', 'esbuild', 'vite', 'preact'])
        expect(packages.map((one) => one.name)).not.toContain(name)
    })

    test('holds the console, built', () => {
      const home = path.join(folder, 'usr/lib/sallyport/dist/console')
      const page = fs.readFileSync(path.join(home, 'index.html'), 'utf8')
      const named = [...page.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map(([, name = '']) => name)
      expect(named.filter((name) => fs.existsSync(path.join(home, name)))).toHaveLength(3)
    })

    test('has a bill of materials that names every package and every library in it, and nothing else', () => {
      const bom = JSON.parse(fs.readFileSync(path.join(folder, 'usr/share/doc/sallyport/sbom.cdx.json'), 'utf8')) as Bom
      expect(bom).toMatchObject({ bomFormat: 'CycloneDX', metadata: { component: { name: 'sallyport' } } })
      const purls = bom.components.map(({ purl }) => purl ?? '')
      const installed = installedPackages(path.join(folder, 'usr/lib/sallyport/node_modules'))
      const npm = purls.filter((purl) => purl.startsWith('pkg:npm/')).map((purl) => decodeURIComponent(purl))
      expect(new Set(npm)).toEqual(new Set(installed.map(({ name, version }) => `pkg:npm/${name}@${version}`)))
      expect(purls).toContain(`pkg:generic/node@${process.version.slice(1)}`)
      const named = bom.components.flatMap(({ properties = [] }) =>
        properties.filter(({ name }) => name === 'sallyport:file').map(({ value }) => path.basename(value)),
      )
      const libraries = fs
        .readdirSync(folder, { recursive: true, encoding: 'utf8' })
        .filter((file) => /\.so(\.\d+)*$/.test(file) && !file.includes('node_modules'))
        .map((file) => path.basename(file))
      expect(libraries).toContain('libc.so.6')
      expect(new Set(named.filter((name) => name !== 'node'))).toEqual(new Set(libraries))
      expect(purls.some((purl) => purl.startsWith('pkg:deb/debian/libc6@'))).toBe(true)
    })

    test(
      'runs as nobody in particular, on a root that nobody can write to, and says that it is well',
      { timeout: 180_000 },
      async () => {
        const config = path.join(folder, 'sallyport.yaml')
        fs.writeFileSync(config, 'state: /var/lib/sallyport/state\n')
        await docker(
          ...['run', '--detach', '--name', 'alone', '--read-only', '--cap-drop', 'ALL', '--network', 'none'],
          ...['--security-opt', 'no-new-privileges', '--volume', `${config}:/etc/sallyport/sallyport.yaml:ro`, IMAGE],
        )
        await until(async () => (await health('alone')) === 'healthy')
        const status = fs.readFileSync(`/proc/${(await inspect('alone')).State.Pid}/status`, 'utf8')
        expect(status).toMatch(/^Uid:\t65532\t65532\t65532\t65532$/m)
        expect(status).toMatch(/^CapEff:\t0+$/m)
        const write = "require('fs').writeFileSync(process.argv[1], '')"
        for (const file of ['/x', '/usr/lib/sallyport/x', '/etc/sallyport/x'])
          await expect(docker('exec', 'alone', '/usr/bin/node', '-e', write, file)).rejects.toThrow(/EROFS/)
        await docker('exec', 'alone', '/usr/bin/node', '-e', write, '/var/lib/sallyport/x')
        await docker('stop', 'alone')
        expect((await inspect('alone')).State).toMatchObject({ ExitCode: 0 })
        await docker('rm', '--volumes', 'alone')
      },
    )

    test('says that it is not well while the gateway does not answer', async () => {
      const health = ['run', '--rm', '--network', 'none', '--entrypoint', '/usr/bin/node', IMAGE]
      await expect(docker(...health, '/usr/lib/sallyport/health.mjs')).rejects.toThrow(/not ready/)
    })
  })

  describe('the compose file', () => {
    const compose = (...args: readonly string[]): Promise<string> =>
      run(
        'docker-compose',
        [
          '-p',
          'demo',
          '-f',
          COMPOSE,
          '-f',
          path.join(folder, 'override.yaml'),
          '--project-directory',
          path.dirname(COMPOSE),
          ...args,
        ],
        { SALLYPORT_IMAGE: IMAGE, SANDBOX_IMAGE: 'busybox' },
      )
    const inside = (service: 'sandbox' | 'probe', line: string): string => {
      const done = spawnSync('docker', ['exec', `demo_${service}_1`, 'sh', '-c', `${line} 2>&1`], {
        env: { ...process.env, ...engineOf() },
        encoding: 'utf8',
        timeout: 60_000,
      })
      return done.stdout
    }
    const asking = (host: string): string =>
      `(printf 'CONNECT ${host}:${PORT} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'; sleep 1; echo hello; sleep 1) | timeout 10 nc 172.30.240.2 3128`

    beforeAll(async () => {
      // The internet of this test has addresses that are nobody's; and somebody on the other network shows what a way out looks like.
      fs.writeFileSync(
        path.join(folder, 'override.yaml'),
        `services:
  gateway:
    environment:
      SALLYPORT_NETWORK_HOSTS: '{ example.com: ${OUTSIDE.public4}, api.github.com: ${OUTSIDE.public4}, elsewhere.test: ${OUTSIDE.public4} }'
      SALLYPORT_NETWORK_ALLOW_PRIVATE: ${OUTSIDE.public4}/32
      SALLYPORT_LISTEN_BOUND: '[{ address: "172.30.240.2:3128", sandbox: demo, egress: { kind: static, allowedHosts: ["example.com:*"] } }]'
  probe:
    image: busybox
    command: [sleep, '2147483647']
    networks: [outside]
`,
      )
      await compose('up', '--detach')
    }, 180_000)
    afterAll(async () => {
      await compose('down', '--volumes', '--timeout', '5')
    }, 120_000)

    test('lets the sandbox out to what is allowed, and says why not for the rest', () => {
      expect(inside('sandbox', asking('example.com'))).toMatch(/^HTTP\/1\.1 200 [^]*reached a service/)
      expect(inside('sandbox', asking('elsewhere.test'))).toContain('x-deny-reason: host_not_allowed')
      expect(inside('sandbox', asking(OUTSIDE.metadata))).toContain('403')
    })

    // Each is tried from the other network as well, where it works: so the attempt itself is sound.
    const attempts = [
      ['TCP to the internet', `echo x | timeout 5 nc -w 3 ${OUTSIDE.public4} ${PORT}`, 'reached a service'],
      ['TCP to the metadata address', `echo x | timeout 5 nc -w 3 ${OUTSIDE.metadata} 80`, 'reached a service'],
      [
        'TCP to the host by its outer address',
        `echo x | timeout 5 nc -w 3 ${HOST.public4} ${PORT}`,
        'reached a service',
      ],
    ] as const
    test.each(attempts)('stops %s beside the gateway', (_what, line, sign) => {
      expect(inside('probe', line)).toContain(sign)
      expect(inside('sandbox', line)).not.toContain(sign)
    })

    test.each([
      ['the internet', OUTSIDE.public4, PORT],
      ['a name server', OUTSIDE.nameServer, 53],
      ['the host', HOST.public4, PORT],
    ] as const)('stops UDP to %s', async (_what, address, port) => {
      const send = `const s = require('dgram').createSocket('udp4'); setTimeout(() => process.exit(), 2000); s.on('error', () => process.exit()).on('message', (m) => { console.log(String(m)); process.exit() }).send('x', ${port}, '${address}')`
      // By this machine's Node in the network of the container, which has none.
      const from = async (service: string): Promise<string> => {
        const { State } = await inspect(`demo_${service}_1`)
        return run('nsenter', ['--target', String(State.Pid), '--net', '--', process.execPath, '-e', send])
      }
      expect(await from('probe')).toContain('reached a service')
      expect(await from('sandbox')).toBe('')
    })

    test('stops ping, and the host on the network of the sandbox itself', () => {
      const routes = inside('sandbox', 'ip route')
      expect(routes).toContain('172.30.240.0/29')
      for (const address of ['172.30.240.1', HOST.public4, OUTSIDE.public4])
        expect(
          inside('sandbox', `timeout 5 ping -c 1 -W 2 ${address}; echo x | timeout 5 nc -w 2 ${address} ${PORT}`),
        ).not.toMatch(/bytes from|reached a service/)
      expect(inside('probe', `timeout 5 ping -c 1 -W 2 ${OUTSIDE.public4}`)).toContain('bytes from')
    })

    test('leaves no name to ask outside', () => {
      expect(inside('sandbox', 'timeout 10 nslookup leak.example.test')).not.toMatch(/Address.*192\.0\.2/)
      expect(inside('sandbox', 'cat /etc/resolv.conf')).toContain('127.0.0.11')
    })

    test('keeps the admin listener and the bound one from everybody else', () => {
      const gatewayOutside = execFileSync(
        'docker',
        ['inspect', '--format', '{{.NetworkSettings.Networks.demo_outside.IPAddress}}', 'demo_gateway_1'],
        { env: { ...process.env, ...engineOf() }, encoding: 'utf8' },
      ).trim()
      const get = (address: string, port: number): string =>
        `printf 'GET /healthz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' | timeout 5 nc -w 3 ${address} ${port}`
      expect(inside('sandbox', get('172.30.240.2', 9090))).not.toContain('200')
      expect(inside('probe', get(gatewayOutside, 9090))).not.toContain('200')
      expect(inside('probe', get(gatewayOutside, 3128))).not.toContain('HTTP/')
      expect(inside('sandbox', get('172.30.240.2', 3128))).toContain('HTTP/1.1 400')
    })

    test('is what its documentation says of both containers', async () => {
      for (const name of ['demo_gateway_1', 'demo_sandbox_1']) {
        const { HostConfig } = await inspect(name)
        expect(HostConfig).toMatchObject({ ReadonlyRootfs: true, CapDrop: ['ALL'], Privileged: false })
        expect(HostConfig.SecurityOpt).toContain('no-new-privileges:true')
      }
      const { services } = parse(fs.readFileSync(COMPOSE, 'utf8')) as { services: Record<string, { ports?: unknown }> }
      expect(Object.values(services).every(({ ports }) => ports === undefined)).toBe(true)
    })
  })
})

interface Bom {
  readonly components: readonly {
    readonly purl?: string
    readonly properties?: readonly { readonly name: string; readonly value: string }[]
  }[]
}

interface Inspected {
  readonly State: { readonly Pid: number; readonly ExitCode: number; readonly Health?: { readonly Status: string } }
  readonly HostConfig: { readonly SecurityOpt: readonly string[] }
}

async function inspect(name: string): Promise<Inspected> {
  const [found] = JSON.parse(await docker('inspect', name)) as Inspected[]
  return found!
}

async function health(name: string): Promise<string | undefined> {
  return (await inspect(name)).State.Health?.Status
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 240; tries++) {
    if (await isSo()) return
    await new Promise((resolve) => setTimeout(resolve, 250))
  }
  throw new Error('it did not come to it within a minute')
}

/** By their manifests, nested ones too. */
function installedPackages(folder: string): { readonly name: string; readonly version: string }[] {
  return fs
    .readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => /(^|node_modules\/)(@[^/]+\/)?[^/@]+\/package\.json$/.test(file))
    .map((file) => JSON.parse(fs.readFileSync(path.join(folder, file), 'utf8')) as { name: string; version: string })
}
