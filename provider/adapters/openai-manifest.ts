/** What a manifest of the OpenAI Agents SDK asks for, and what of it a sandbox can have. */
import type { Entry, Manifest } from '@openai/agents/sandbox'
import type { Sandbox } from '../sandbox.ts'

type Sdk = typeof import('@openai/agents/sandbox')

/** @throws the SDK's `SandboxUnsupportedFeatureError` for what no sandbox has, before there is one */
export function checkManifest(sdk: Sdk, manifest: Manifest): void {
  const { users, groups, extraPathGrants } = manifest
  if (users.length > 0 || groups.length > 0) refuse(sdk, 'users and groups')
  if (extraPathGrants.length > 0) refuse(sdk, 'path grants')
  for (const { entry } of manifest.iterEntries()) checkEntry(sdk, entry)
}

/** Makes files and folders below the workspace. @throws as {@link checkManifest}, and SandboxError */
export async function materialize(
  sdk: Sdk,
  sandbox: Sandbox,
  entries: Readonly<Record<string, Entry>>,
  folder: string = sandbox.rootDir,
): Promise<void> {
  for (const [name, entry] of Object.entries(entries)) {
    checkEntry(sdk, entry)
    const place = `${folder}/${sdk.normalizeRelativePath(name)}`
    if (entry.type === 'file') await sandbox.writeFile(place, (entry as { content: string | Uint8Array }).content)
    else {
      await sandbox.mkdir(place)
      await materialize(sdk, sandbox, (entry as { children?: Record<string, Entry> }).children ?? {}, place)
    }
  }
}

function checkEntry(sdk: Sdk, { type, permissions, group }: Entry): void {
  if (type !== 'file' && type !== 'dir') refuse(sdk, `entries of type \`${type}\``)
  if (permissions !== undefined || group !== undefined) refuse(sdk, 'permissions and groups of entries')
}

function refuse(sdk: Sdk, what: string): never {
  throw new sdk.SandboxUnsupportedFeatureError(
    `${what} can not be had here: take files and folders with content, or put things into the sandbox with copyIn`,
  )
}
