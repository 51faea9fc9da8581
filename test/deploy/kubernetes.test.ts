/** The Kubernetes manifests: right by the schemas, by the security level that they ask for, and by the gateway's own reading of its configuration. */
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { parseConfig } from '../../proxy/config/parse.ts'
import type { Config } from '../../proxy/config/schema.ts'
import { describeNeeding } from '../provider/needs.ts'
import { find, type Manifest, render, schemaFaults } from './manifests.ts'
import { type Container, type PodSpec, restrictedFaults } from './pod-security.ts'

const FOLDERS = ['shared-gateway', 'floor', 'sandbox', 'sidecar'] as const

const podOf = ({ spec }: Manifest): PodSpec => (spec as { template: { spec: PodSpec } }).template.spec
const workloads = (manifests: readonly Manifest[]): readonly Manifest[] =>
  manifests.filter(({ kind }) => ['Deployment', 'Job', 'StatefulSet', 'DaemonSet'].includes(kind))

/** As the gateway in `container` reads it: the file, and over it the variables as the kubelet expands them. */
function configOf(manifests: readonly Manifest[], name: string, container: Container): Config {
  const known: Record<string, string> = { POD_UID: 'd8b1c6a4', GATEWAY_ADDRESS: '10.96.3.128' }
  const environment = Object.fromEntries(
    (container.env ?? []).flatMap(({ name: variable, value }) =>
      value === undefined
        ? []
        : [[variable, value.replaceAll(/\$\((\w+)\)/g, (_all, key: string) => known[key] ?? '')]],
    ),
  )
  const document: unknown = parse(find(manifests, 'ConfigMap', name).data?.['sallyport.yaml'] ?? '')
  const read = parseConfig(document, { environment, folder: '/etc/sallyport' })
  if (!read.ok) throw new Error(JSON.stringify(read.faults))
  return read.config
}

describeNeeding(['kubernetes'], 'the Kubernetes manifests', () => {
  describe.each(FOLDERS)('%s', (folder) => {
    test('is right by the schemas', () => {
      expect(schemaFaults(render(folder))).toBe('')
    })

    test('asks for the restricted level, and its pods pass it', () => {
      const manifests = render(folder)
      for (const { metadata } of manifests.filter(({ kind }) => kind === 'Namespace'))
        expect(metadata.labels).toMatchObject({ 'pod-security.kubernetes.io/enforce': 'restricted' })
      expect(manifests.some(({ kind }) => kind === 'Namespace')).toBe(true)
      for (const workload of workloads(manifests)) expect(restrictedFaults(podOf(workload))).toEqual([])
    })

    test('mounts no token of the API server where nobody asked for one', () => {
      const manifests = render(folder)
      for (const workload of workloads(manifests)) expect(podOf(workload).automountServiceAccountToken).toBe(false)
      for (const account of manifests.filter(({ kind }) => kind === 'ServiceAccount'))
        expect(account).toMatchObject({ automountServiceAccountToken: false })
      expect(manifests.filter(({ kind }) => /Role|Binding|Secret/.test(kind))).toEqual([])
    })

    test('closes its namespace before it opens anything', () => {
      const policy = find(render(folder), 'NetworkPolicy', 'deny-all')
      expect(policy.spec).toEqual({ podSelector: {}, policyTypes: ['Ingress', 'Egress'] })
    })
  })

  test('what the schemas do not know, or know otherwise, is found', () => {
    const [first] = render('floor').filter(({ kind }) => kind === 'NetworkPolicy')
    const spec = { podSelector: {}, policyTypes: ['Egress'] }
    expect(schemaFaults([{ ...first!, spec: { ...spec, egres: [] } }])).toContain('egres')
    expect(schemaFaults([{ ...first!, spec: { ...spec, egress: [{ ports: [{ port: [] }] }] } }])).toContain(
      'manifests.mts',
    )
    expect(schemaFaults([{ ...first!, spec: { policyTypes: 'Egress' } }])).not.toBe('')
  })

  test('a pod that is not restricted is found', () => {
    const pod = podOf(find(render('shared-gateway'), 'Deployment', 'sallyport-gateway'))
    const [container] = pod.containers
    const changed = (securityContext: object): PodSpec => ({ ...pod, containers: [{ ...container!, securityContext }] })
    expect(restrictedFaults(changed({})).length).toBeGreaterThanOrEqual(3)
    expect(restrictedFaults({ ...pod, securityContext: {} })).toHaveLength(2)
    expect(restrictedFaults({ ...pod, hostNetwork: true, volumes: [{ name: 'x', hostPath: {} }] })).toHaveLength(2)
  })

  describe('the shared gateway', () => {
    const manifests = (): readonly Manifest[] => render('shared-gateway')
    const deployment = (): Manifest => find(manifests(), 'Deployment', 'sallyport-gateway')

    test('reads its configuration, and can only be used by who the cluster says that it is', () => {
      const [container] = podOf(deployment()).containers
      const config = configOf(manifests(), 'sallyport-config', container!)
      expect(config.issuers).toMatchObject([
        {
          typ: ['none'],
          algorithms: ['RS256'],
          unsafeNoAudience: false,
          unsafePlainHttp: false,
          audience: ['sallyport'],
        },
      ])
      expect(config.network.allowPrivate).toEqual([])
      expect(config.listen.bound).toEqual([])
      expect(config.state.startsWith(`${mountOf(container!, 'state')}/`)).toBe(true)
      expect(config.issuers[0]?.jwksTokenFile).toBe(`${mountOf(container!, 'cluster')}/token`)
    })

    test('serves where its Service, its probes and its policies expect it', () => {
      const [container] = podOf(deployment()).containers
      const { listen } = configOf(manifests(), 'sallyport-config', container!)
      expect(container?.ports).toEqual([
        { name: 'proxy', containerPort: 3128 },
        { name: 'admin', containerPort: 9090 },
      ])
      expect(listen.proxy).toMatchObject([{ port: 3128 }])
      expect(listen.admin).toMatchObject({ port: 9090 })
      const { spec } = find(manifests(), 'Service', 'sallyport-gateway')
      expect(spec).toMatchObject({ ports: [{ port: 3128, targetPort: 'proxy' }] })
      expect(container?.['readinessProbe']).toMatchObject({ httpGet: { path: '/readyz', port: 'admin' } })
    })

    test('is as many as the autoscaler says, and drains before it is ended', () => {
      const pod = podOf(deployment())
      const [container] = pod.containers
      const config = configOf(manifests(), 'sallyport-config', container!)
      expect(deployment().spec).not.toHaveProperty('replicas')
      expect(find(manifests(), 'HorizontalPodAutoscaler', '').spec).toMatchObject({
        scaleTargetRef: { kind: 'Deployment', name: 'sallyport-gateway' },
        minReplicas: 2,
      })
      expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(5 + config.timeouts.drainSeconds)
      const labels = (deployment().spec as { template: { metadata: { labels: object } } }).template.metadata.labels
      for (const kind of ['PodDisruptionBudget', 'Service']) {
        const { selector } = find(manifests(), kind, 'sallyport-gateway').spec as { selector: { matchLabels?: object } }
        expect(labels).toMatchObject(selector.matchLabels ?? selector)
      }
    })

    test('is at the address that sandboxes are given', () => {
      const { spec } = find(manifests(), 'Service', 'sallyport-gateway') as { spec?: { clusterIP?: string } }
      expect(find(render('floor'), 'ConfigMap', 'sallyport-gateway').data).toEqual({ address: spec?.clusterIP })
    })
  })

  describe('the sidecar', () => {
    const manifests = (): readonly Manifest[] => render('sidecar')
    const pod = (): PodSpec => podOf(find(manifests(), 'Deployment', 'agent'))

    test('is there before the sandbox and after it', () => {
      expect(pod().initContainers).toMatchObject([{ name: 'gateway', restartPolicy: 'Always' }])
      expect(pod().initContainers?.[0]).toHaveProperty('startupProbe')
    })

    test('has the token and the configuration for itself', () => {
      const [gateway] = pod().initContainers ?? []
      const [sandbox] = pod().containers
      const namesOf = (container: Container | undefined): string[] =>
        (container?.volumeMounts ?? []).map(({ name }) => name)
      expect(namesOf(gateway)).toEqual(['config', 'token', 'state'])
      expect(namesOf(sandbox)).toEqual(['work'])
      expect(gateway?.securityContext?.runAsUser).not.toBe(sandbox?.securityContext?.runAsUser)
      expect(pod().shareProcessNamespace).toBe(false)
    })

    test('listens for its sandbox alone, on loopback; its admin listener is out of reach', () => {
      const [gateway] = pod().initContainers ?? []
      const { listen, network } = configOf(manifests(), 'sallyport-sidecar', gateway!)
      expect(listen.proxy).toEqual([])
      expect(listen.bound).toMatchObject([{ address: { host: '127.0.0.1', port: 3128 }, sandbox: 'd8b1c6a4' }])
      expect(listen.admin).toEqual({ kind: 'unix', path: '/var/lib/sallyport/admin.sock' })
      expect(network.upstream).toEqual({
        url: 'http://10.96.3.128:3128',
        tokenFile: `${mountOf(gateway!, 'token')}/token`,
        resolve: 'upstream',
      })
    })
  })

  test.each(['sandbox', 'sidecar'] as const)('%s brings a token for the gateway alone, and no DNS', (folder) => {
    for (const workload of workloads(render(folder))) {
      const { dnsPolicy, volumes = [] } = podOf(workload)
      expect(dnsPolicy).toBe('None')
      const tokens = volumes.flatMap(({ projected }) =>
        ((projected as { sources?: { serviceAccountToken?: object }[] } | undefined)?.sources ?? []).flatMap(
          ({ serviceAccountToken }) => serviceAccountToken ?? [],
        ),
      )
      expect(tokens).toEqual([{ audience: 'sallyport', path: 'token', expirationSeconds: 600 }])
    }
  })
})

function mountOf({ volumeMounts = [] }: Container, name: string): string | undefined {
  return volumeMounts.find((mount) => mount.name === name)?.mountPath
}
