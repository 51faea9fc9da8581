/** A new machine's first steps: what its image has is found out, folders are made, and it learns the gateway's name where it needs one. */
import { SandboxError } from '../../sandbox-error.ts'
import { PlatformError } from '../platform/platform-error.ts'
import type { Machine } from './e2b-api.ts'
import type { GatewayPlace } from './gateway-address.ts'
import { decoded, runScript } from './machine-script.ts'
import { HOSTS_SCRIPT, SETUP_SCRIPT } from './setup-script.ts'

/** Folders of a machine. */
export interface MachineFolders {
  readonly rootDir: string
  readonly spool: string
}

/** @throws PlatformError `image_unusable` for an image in which commands can't be run as they must be */
export async function prepareMachine(
  machine: Machine,
  { gateway, isNew, template, signal }: { readonly gateway: GatewayPlace; readonly isNew: boolean; readonly template: string; readonly signal?: AbortSignal | undefined }, // prettier-ignore
): Promise<MachineFolders> {
  const lines = await scriptOf(machine, { script: SETUP_SCRIPT, words: [], signal }, template)
  const home = decoded(lines.find((line) => line.startsWith('home '))?.slice(5) ?? '')
  if (!/^\/[\x20-\x7e]{1,200}$/.test(home))
    throw unusable(template, 'its user has no home folder that can be written to')
  if (gateway.protocol === 'https:') {
    if (!lines.includes('curl yes'))
      throw unusable(template, 'it has no `curl`, which looks from inside whether a gateway over TLS answers')
    if (isNew && gateway.name !== gateway.address)
      await scriptOf(machine, { script: HOSTS_SCRIPT, words: [gateway.address, gateway.name], isRoot: true, signal }, template) // prettier-ignore
  }
  const folder = home === '/' ? '' : home
  return { rootDir: `${folder}/workspace`, spool: `${folder}/.sallyport` }
}

async function scriptOf(machine: Machine, run: Parameters<typeof runScript>[1], template: string) {
  try {
    const lines = await runScript(machine, run)
    if (lines.at(-1) !== 'ok') throw unusable(template, `its folders can't be written to (${lines.at(-1) ?? ''})`)
    return lines
  } catch (error) {
    // The one sign of a missing program that the platform gives is the shell's exit code.
    const { cause } = error as { readonly cause?: { readonly exitCode?: unknown } }
    if (error instanceof SandboxError && cause?.exitCode === 127)
      throw unusable(
        template,
        'it has no `perl`: take an image of Debian or Ubuntu, all of which have it (`perl-base`)',
      )
    throw error
  }
}

function unusable(template: string, why: string): PlatformError {
  return new PlatformError('image_unusable', `the template \`${template}\` can't be used: ${why}`)
}
