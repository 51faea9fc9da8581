/** The folders of a sandbox that is a container group: those of its image, and for a group that is made cold, shares of Azure Files. */
import { SandboxError } from '../../sandbox-error.ts'
import {
  type ContainerSandboxLayout,
  type ContainerSandboxMount,
  type ContainerSandboxMountSource,
  DEFAULT_ROOT,
  resolveLayout,
} from '../container-layout.ts'

/** A share of Azure Files. */
export type AzureFileShare = Extract<ContainerSandboxMountSource, { readonly kind: 'azureFileShare' }>

/** A folder, checked. */
export interface AciFolder {
  readonly path: string
  readonly writable: boolean
  /** Undefined for a folder of the image. */
  readonly share?: AzureFileShare
}

/**
 * Checks it; the first folder is `rootDir`.
 * @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED`
 */
export function resolveAciLayout(layout: ContainerSandboxLayout | undefined, isPooled: boolean): readonly AciFolder[] {
  if (layout === undefined) return [{ path: DEFAULT_ROOT, writable: true }]
  const shares: (AzureFileShare | undefined)[] = []
  // In the order in which `resolveLayout` gives them back.
  const inImage = (mount: ContainerSandboxMount, name: string): ContainerSandboxMount => {
    shares.push(shareOf(mount.source, name, isPooled))
    return { ...mount, source: { kind: 'inImage' } }
  }
  const { outputs, uploads, scratch, toolResults, transcripts, skills } = layout
  const folders = resolveLayout(
    {
      outputs: inImage(outputs, 'outputs'),
      ...(uploads && { uploads: inImage(uploads, 'uploads') }),
      ...(scratch && { scratch: inImage(scratch, 'scratch') }),
      ...(toolResults && { toolResults: inImage(toolResults, 'toolResults') }),
      ...(transcripts && { transcripts: inImage(transcripts, 'transcripts') }),
      ...(skills && { skills: skills.map((skill, index) => inImage(skill, `skills[${index}]`)) }),
    },
    { runtimeRoot: '/' },
  )
  return folders.map(({ path, writable }, index) => {
    const share = shares[index]
    return { path, writable, ...(share !== undefined && { share }) }
  })
}

function shareOf(source: ContainerSandboxMountSource, name: string, isPooled: boolean): AzureFileShare | undefined {
  switch (source.kind) {
    case 'inImage':
      return undefined
    case 'hostDir':
      throw refused(`\`${name}\` is a folder of this host, which a container group elsewhere can not see: the backend \`{ tier: 'container', runtime: 'docker' }\` mounts such; here use { kind: 'inImage' }${isPooled ? '' : " or { kind: 'azureFileShare' }"}`) // prettier-ignore
    case 'azureFileShare':
      if (isPooled)
        throw refused(`\`${name}\` is an Azure file share, and an instance of a standby pool can be given no volume when it is claimed: leave \`pool\` out and make groups cold (\`group\`), or use { kind: 'inImage' }`) // prettier-ignore
      for (const field of ['storageAccountName', 'shareName', 'storageAccountKey'] as const)
        if (typeof source[field] !== 'string' || source[field] === '') throw refused(`\`${name}\` has no \`${field}\``)
      return source
  }
}

function refused(message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_NOT_SUPPORTED', message)
}
