/**
 * The floor under the proxy, tried: real network namespaces, rules of nftables made from the very policies that are shipped, and real gateways with the
 * configuration that is shipped. A pod on the floor that goes by the proxy gets out; one that does not reaches nothing.
 */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { generateKeyPairSync, randomUUID } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { SignJWT } from 'jose'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createAuthority } from '../origins/certificates.ts'
import { describeNeeding } from '../provider/needs.ts'
import { createNetwork, HOST, OUTSIDE, type TestNetwork } from '../provider/network.ts'
import { floorRules } from './floor-rules.ts'
import { find, render } from './manifests.ts'
import type { PodSpec } from './pod-security.ts'
import { type RunningPod, startPods } from './pods.ts'

const ROOT = path.resolve(import.meta.dirname, '../..')
const ALLOWED = 'api.github.com'
/** What an attempt shows that came to something. */
const SIGNS = /reached a service|reached the origin|bytes from/
const CLUSTER = 'https://kubernetes.default.svc.cluster.local'
const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })

describeNeeding(['root', 'namespaces', 'nftables', 'busybox', 'curl', 'kubernetes'], 'the floor', () => {
  const shared = render('shared-gateway')
  const cluster = [...shared, ...render('sidecar')]
  const { clusterIP } = find(shared, 'Service', 'sallyport-gateway').spec as { clusterIP: string }
  const children: ChildProcess[] = []
  let folder: string
  let network: TestNetwork
  let pods: Readonly<Record<'gateway' | 'sandbox' | 'neighbour' | 'dns' | 'free', RunningPod>>
  let closePods: () => Promise<void>

  const start = async (
    where: readonly string[],
    command: readonly string[],
    ready: RegExp,
    env: NodeJS.ProcessEnv = {},
  ) => {
    const [program = '', ...args] = [...where, ...command]
    const child = spawn(program, args, {
      cwd: folder,
      env: { ...process.env, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    children.push(child)
    let output = ''
    await new Promise<void>((resolve, reject) => {
      const read = (chunk: Buffer): void => {
        output += chunk.toString()
        if (ready.test(output)) resolve()
      }
      child.stdout.on('data', read)
      child.stderr.on('data', read)
      child.once('exit', () => reject(new Error(`${command.join(' ')}: ${output}`)))
    })
  }
  const gateway = (where: readonly string[], config: string, name: string, env: NodeJS.ProcessEnv) => {
    const file = path.join(folder, `${name}.yaml`)
    fs.writeFileSync(file, config)
    const command = [process.execPath, path.join(ROOT, 'provider/cli/bin.ts'), 'serve', '--config', file]
    return start(where, command, /audit {3}/, {
      SALLYPORT_STATE: path.join(folder, name),
      SALLYPORT_LOG_LEVEL: 'silent',
      ...env,
    })
  }
  const run = (pod: RunningPod, line: string): Promise<string> => {
    const [program, ...args] = [...pod.inside, 'sh', '-c', `${line} 2>&1`]
    return new Promise((resolve) => {
      execFile(program, args, { encoding: 'utf8', timeout: 60_000 }, (_error, stdout) => resolve(stdout))
    })
  }
  /** Which attempts came to something. They are made at the same time. */
  const succeeding = async (pod: RunningPod, lines: Readonly<Record<string, string>>): Promise<string[]> => {
    const tried = await Promise.all(
      Object.entries(lines).map(async ([name, line]) => ({ name, isThrough: SIGNS.test(await run(pod, line)) })),
    )
    return tried.flatMap(({ name, isThrough }) => (isThrough ? [name] : [])).sort()
  }
  const curl = (pod: RunningPod, proxy: string, url = `https://${ALLOWED}/`): Promise<string> =>
    run(pod, `curl -sS -m 15 --noproxy '' --cacert ${folder}/ca.pem -x '${proxy}' ${url}`)

  /** As the kubelet would put it into a pod of the namespace. */
  const token = (namespace: string, audience = 'sallyport'): Promise<string> => {
    const now = Math.floor(Date.now() / 1000)
    const pod = { name: 'sandbox-x', uid: randomUUID() }
    return new SignJWT({ 'kubernetes.io': { namespace, pod, serviceaccount: { name: 'agent', uid: randomUUID() } } })
      .setProtectedHeader({ alg: 'RS256', kid: 'k1' })
      .setIssuer(CLUSTER)
      .setAudience([audience])
      .setSubject(`system:serviceaccount:${namespace}:agent`)
      .setJti(randomUUID())
      .setIssuedAt(now)
      .setNotBefore(now)
      .setExpirationTime(now + 600)
      .sign(privateKey)
  }

  beforeAll(async () => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-floor-'))
    network = await createNetwork()
    const plan = {
      gateway: { namespace: 'sallyport', labels: { app: 'sallyport-gateway' } },
      sandbox: { namespace: 'agents', labels: { app: 'agent' } },
      neighbour: { namespace: 'agents', labels: { app: 'agent' } },
      dns: { namespace: 'kube-system', labels: { 'k8s-app': 'kube-dns' } },
      free: { namespace: 'default', labels: {} },
    }
    const started = await startPods(network, plan)
    ;({ pods, close: closePods } = started)

    const tcp = (address: string, ...ports: number[]) => ports.map((port) => [address, port] as const)
    await network.serve('internet', {
      tcp: [...tcp(OUTSIDE.public4, 7000), ...tcp(OUTSIDE.metadata, 80), ...tcp(OUTSIDE.public6, 7000)],
      udp: [
        [OUTSIDE.public4, 7000],
        [OUTSIDE.nameServer, 53],
      ],
    })
    await network.serve('host', { tcp: tcp(HOST.public4, 6443, 10250) })
    for (const pod of [pods.neighbour, pods.dns]) {
      const services = { tcp: tcp(pod.ip4, 53, 8080), udp: [[pod.ip4, 53]] }
      await start(
        pod.inside,
        [process.execPath, path.join(ROOT, 'test/provider/services.ts'), JSON.stringify(services)],
        /ready/,
      )
    }
    const authority = createAuthority()
    const leaf = authority.issue(ALLOWED, { names: [ALLOWED] })
    fs.writeFileSync(path.join(folder, 'ca.pem'), authority.cert)
    fs.writeFileSync(path.join(folder, 'leaf.json'), JSON.stringify({ cert: leaf.cert, key: leaf.key }))
    const origin = `require('https').createServer(JSON.parse(require('fs').readFileSync('leaf.json')), (_q, r) => r.end('reached the origin')).listen(443, '${OUTSIDE.public4}', () => console.log('ready'))`
    await start(network.inInternet, [process.execPath, '-e', origin], /ready/)

    // The shipped configuration; what a cluster would provide comes by variables.
    const data = find(shared, 'ConfigMap', 'sallyport-config').data?.['sallyport.yaml'] ?? ''
    const [{ jwksTokenFile: _none, ...issuer }] = (parse(data) as { issuers: [Record<string, unknown>] }).issuers
    const key = { ...publicKey.export({ format: 'jwk' }), kid: 'k1', alg: 'RS256', use: 'sig' }
    fs.writeFileSync(path.join(folder, 'jwks.json'), JSON.stringify({ keys: [key] }))
    await gateway(pods.gateway.inside, data, 'shared', {
      SALLYPORT_ISSUERS: JSON.stringify([{ ...issuer, jwks: path.join(folder, 'jwks.json') }]),
      SALLYPORT_NETWORK_HOSTS: JSON.stringify({ [ALLOWED]: OUTSIDE.public4 }),
      SALLYPORT_NETWORK_ALLOW_PRIVATE: `${OUTSIDE.public4}/32`,
    })

    const rules = `${floorRules(cluster, Object.values(pods))}
table ip services {
  chain in {
    type nat hook prerouting priority dstnat; policy accept;
    ip daddr ${clusterIP} tcp dport 3128 dnat to ${pods.gateway.ip4}:3128
  }
}
`
    const [program, ...args] = [...network.inHost, 'nft', '-f', '-']
    execFileSync(program, args, { input: rules })
  }, 180_000)
  afterAll(async () => {
    for (const child of children) {
      if (child.exitCode !== null) continue
      const ended = new Promise((resolve) => child.once('exit', resolve))
      child.kill('SIGKILL')
      await ended
    }
    await closePods()
    await network.close()
    fs.rmSync(folder, { recursive: true, force: true })
  })

  describe('by the proxy', () => {
    test('curl gets out with the token of its pod', async () => {
      expect(await curl(pods.sandbox, `http://pod:${await token('agents')}@${clusterIP}:3128`)).toBe(
        'reached the origin',
      )
    })

    test.each([
      ['a token of a namespace without a policy', () => token('other'), 403],
      ['a token for the API server', () => token('agents', CLUSTER), 407],
      ['no token that anybody signed', () => Promise.resolve('x.y.z'), 407],
    ])('not with %s', async (_what, make, status) => {
      const answer = await curl(pods.sandbox, `http://pod:${await make()}@${clusterIP}:3128`)
      expect(answer).not.toContain('reached')
      expect(answer).toContain(String(status))
    })

    test('not to the cluster, the node or the metadata of the cloud', async () => {
      const proxy = `http://pod:${await token('agents')}@${clusterIP}:3128`
      for (const address of [`${pods.dns.ip4}:8080`, `${HOST.public4}:6443`, OUTSIDE.metadata, `${clusterIP}:3128`])
        expect(await curl(pods.sandbox, proxy, `https://${address}/`)).toMatch(/403/)
    })
  })

  /** Says what came back, if anything did. */
  const udp = (address: string, port: number): string =>
    `${process.execPath} -e "const s = require('dgram').createSocket('udp4'); setTimeout(() => process.exit(1), 2000); s.on('error', () => process.exit(1)).on('message', (m) => { console.log(String(m)); process.exit(0) }).send('x', ${port}, '${address}')"`
  /** What a pod might try; `free` is a pod that no policy selects, and shows that the attempt is sound. */
  const attempts = (): Readonly<Record<string, string>> => ({
    'TCP to the internet': `echo x | busybox nc -w 3 ${OUTSIDE.public4} 7000`,
    'TCP to the internet by IPv6': `echo x | busybox nc -w 3 ${OUTSIDE.public6} 7000`,
    'HTTPS to the allowed host itself': `curl -sS -m 4 --noproxy '*' --cacert ${folder}/ca.pem --resolve ${ALLOWED}:443:${OUTSIDE.public4} https://${ALLOWED}/`,
    'UDP to the internet': udp(OUTSIDE.public4, 7000),
    'DNS to the internet': udp(OUTSIDE.nameServer, 53),
    'DNS to the cluster by UDP': udp(pods.dns.ip4, 53),
    'DNS to the cluster by TCP': `echo x | busybox nc -w 3 ${pods.dns.ip4} 53`,
    'ICMP to the internet': `timeout 4 busybox ping -c 1 -W 2 ${OUTSIDE.public4}`,
    'ICMP to the gateway': `timeout 4 busybox ping -c 1 -W 2 ${pods.gateway.ip4}`,
    'the metadata of the cloud': `echo x | busybox nc -w 3 ${OUTSIDE.metadata} 80`,
    'the API server': `echo x | busybox nc -w 3 ${HOST.public4} 6443`,
    'the kubelet': `echo x | busybox nc -w 3 ${HOST.public4} 10250`,
    'a neighbour': `echo x | busybox nc -w 3 ${pods.neighbour.ip4} 8080`,
  })

  describe('beside the proxy', () => {
    test('a pod that no policy selects does all this, a sandbox nothing of it', async () => {
      const closed = ['ICMP to the gateway', 'a neighbour']
      // These two are closed from elsewhere as well: nobody comes in.
      const open = Object.keys(attempts()).filter((name) => !closed.includes(name))
      expect(open.length).toBeGreaterThan(10)
      expect(await succeeding(pods.free, attempts())).toEqual(open.sort())
      expect(await succeeding(pods.sandbox, attempts())).toEqual([])
    })

    test('the admin listener of the gateway is closed, to sandboxes and to strangers; so is the proxy to strangers', async () => {
      const ask = (port: number): string => `curl -sS -m 4 --noproxy '*' http://${pods.gateway.ip4}:${port}/readyz`
      for (const pod of [pods.sandbox, pods.free]) expect(await run(pod, ask(9090))).not.toContain('ready"')
      expect(await run(pods.gateway, ask(9090))).toContain('ready"')
      expect(await run(pods.free, ask(3128))).toMatch(/timed out|Timeout/)
      const proxy = `curl -sS -m 15 -i --noproxy '*' http://${clusterIP}:3128/`
      expect(await run(pods.sandbox, proxy)).toMatch(/^HTTP\/1\.1 400/)
    })

    test('the pods of the gateway reach public addresses by TCP and the name server of the cluster, and no more', async () => {
      // The node of this test has a public address, so what is on it is as public.
      const lines = without(attempts(), ['ICMP to the gateway', 'the API server', 'the kubelet'])
      expect(await succeeding(pods.gateway, lines)).toEqual([
        'DNS to the cluster by TCP',
        'DNS to the cluster by UDP',
        'HTTPS to the allowed host itself',
        'TCP to the internet',
        'TCP to the internet by IPv6',
      ])
    })
  })

  describe('a gateway beside the sandbox', () => {
    beforeAll(async () => {
      const { spec } = find(cluster, 'Deployment', 'agent') as { spec?: { template: { spec: PodSpec } } }
      const container = spec?.template.spec.initContainers?.[0]
      fs.writeFileSync(path.join(folder, 'token'), await token('agents'))
      const known: Record<string, string> = { POD_UID: randomUUID(), GATEWAY_ADDRESS: clusterIP }
      const env = Object.fromEntries(
        (container?.env ?? []).flatMap(({ name, value }) =>
          value === undefined
            ? []
            : [
                [
                  name,
                  value
                    .replaceAll(/\$\((\w+)\)/g, (_all, key: string) => known[key] ?? '')
                    .replace('/var/run/secrets/sallyport', folder),
                ],
              ],
        ),
      )
      const data = find(cluster, 'ConfigMap', 'sallyport-sidecar').data?.['sallyport.yaml'] ?? ''
      await gateway(pods.sandbox.inside, data, 'beside', {
        ...env,
        SALLYPORT_LISTEN_ADMIN: `unix:${folder}/admin.sock`,
      })
    }, 60_000)

    test('lets out without a token, to what its own policy names', async () => {
      expect(await curl(pods.sandbox, 'http://127.0.0.1:3128')).toBe('reached the origin')
      expect(await curl(pods.sandbox, 'http://127.0.0.1:3128', 'https://pypi.org/')).toContain('403')
    })

    test('is not there for a neighbour, and its admin listener for nobody in the pod', async () => {
      expect(await run(pods.neighbour, `curl -sS -m 4 http://${pods.sandbox.ip4}:3128/`)).toMatch(/timed out|Timeout/)
      expect(await run(pods.sandbox, "curl -sS -m 4 --noproxy '*' http://127.0.0.1:9090/readyz")).not.toContain(
        'ready"',
      )
    })

    test('opens nothing beside itself', async () => {
      expect(await succeeding(pods.sandbox, attempts())).toEqual([])
    })
  })
})

function without<T>(record: Readonly<Record<string, T>>, names: readonly string[]): Readonly<Record<string, T>> {
  return Object.fromEntries(Object.entries(record).filter(([name]) => !names.includes(name)))
}
