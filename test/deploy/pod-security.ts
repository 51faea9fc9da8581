/**
 * What the `restricted` level of the Pod Security Standards asks of a pod, as far as it is not what Kubernetes does anyway.
 * @see https://kubernetes.io/docs/concepts/security/pod-security-standards/
 */

interface SecurityContext {
  readonly runAsNonRoot?: boolean
  readonly runAsUser?: number
  readonly privileged?: boolean
  readonly allowPrivilegeEscalation?: boolean
  readonly readOnlyRootFilesystem?: boolean
  readonly capabilities?: { readonly add?: readonly string[]; readonly drop?: readonly string[] }
  readonly seccompProfile?: { readonly type: string }
}

export interface Container {
  readonly name: string
  readonly image: string
  readonly restartPolicy?: string
  readonly ports?: readonly { readonly name: string; readonly containerPort: number; readonly hostPort?: number }[]
  readonly env?: readonly { readonly name: string; readonly value?: string }[]
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[]
  readonly securityContext?: SecurityContext
  readonly [probe: `${string}Probe`]: unknown
}

export interface PodSpec {
  readonly automountServiceAccountToken?: boolean
  readonly hostNetwork?: boolean
  readonly hostPID?: boolean
  readonly hostIPC?: boolean
  readonly shareProcessNamespace?: boolean
  readonly dnsPolicy?: string
  readonly terminationGracePeriodSeconds?: number
  readonly securityContext?: SecurityContext
  readonly initContainers?: readonly Container[]
  readonly containers: readonly Container[]
  readonly volumes?: readonly (Readonly<Record<string, unknown>> & { readonly name: string })[]
}

const VOLUMES = [
  'configMap',
  'csi',
  'downwardAPI',
  'emptyDir',
  'ephemeral',
  'persistentVolumeClaim',
  'projected',
  'secret',
]

/** One line a fault. */
export function restrictedFaults(pod: PodSpec): readonly string[] {
  const faults: string[] = []
  const ask = (isRight: boolean, what: string): void => {
    if (!isRight) faults.push(what)
  }
  ask(!pod.hostNetwork && !pod.hostPID && !pod.hostIPC, 'it shares a namespace of the host')
  for (const volume of pod.volumes ?? [])
    ask(
      Object.keys(volume).every((key) => key === 'name' || VOLUMES.includes(key)),
      `volume ${volume.name} is of a kind that is not allowed`,
    )
  for (const container of [...(pod.initContainers ?? []), ...pod.containers]) {
    const own = container.securityContext ?? {}
    const whole = { ...pod.securityContext, ...own }
    const { name } = container
    ask(whole.runAsNonRoot === true, `${name} may run as root`)
    ask(whole.runAsUser !== 0, `${name} runs as root`)
    ask(own.privileged !== true, `${name} is privileged`)
    ask(own.allowPrivilegeEscalation === false, `${name} may gain privileges`)
    ask(own.capabilities?.drop?.includes('ALL') === true, `${name} keeps capabilities`)
    ask(
      (own.capabilities?.add ?? []).every((one) => one === 'NET_BIND_SERVICE'),
      `${name} gets capabilities`,
    )
    ask(['RuntimeDefault', 'Localhost'].includes(whole.seccompProfile?.type ?? ''), `${name} has no seccomp profile`)
    ask(
      (container.ports ?? []).every(({ hostPort }) => hostPort === undefined),
      `${name} takes a port of the host`,
    )
    ask(own.readOnlyRootFilesystem === true, `${name} can write to its root`)
  }
  return faults
}
