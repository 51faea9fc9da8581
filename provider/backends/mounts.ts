/** Which host folders a sandbox of the process tier gets to see, and which it never gets, however they are asked for. */
import { realpathSync, statSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { SandboxError } from '../sandbox-error.ts'
import type { SandboxMount } from './bubblewrap-args.ts'
import { INSIDE } from './inside.ts'

/** A host folder or file to show inside. */
export interface MountOption {
  readonly hostPath: string
  /** Absolute path inside; the real path of `hostPath` by default. */
  readonly path?: string
  /** False by default. */
  readonly writable?: boolean
}

/** What is checked against. */
export interface MountContext {
  /** Where runtime folders of all sandboxes are: their channels are there. */
  readonly runtimeRoot: string
  /** The user's; found out by default. */
  readonly home?: string
}

/** Parts of the inside that the wall itself is made of. */
const RESERVED = ['/proc', '/dev', '/sys', path.dirname(INSIDE.control)]

/**
 * Resolves links and checks.
 *
 * @throws SandboxError `SALLYPORT_SANDBOX_NOT_SUPPORTED` for a path that isn't there, for the root, a home or the runtime folders, for anything that
 * contains one of them, and for a place inside that is taken
 */
export function resolveMount({ hostPath, path: inside, writable }: MountOption, context: MountContext): SandboxMount {
  const real = realPathOf(hostPath)
  if (real === undefined) throw refused(`\`${hostPath}\` is not there`)
  // A home holds keys and tokens, and start-up files that the host's shells run. Its projects are below it.
  const guarded = [
    context.home ?? os.homedir(),
    process.env['HOME'] ?? '/',
    '/root',
    '/home',
    '/proc',
    '/dev',
    '/sys',
    '/run',
    '/var/run',
    '/boot',
    '/etc',
    context.runtimeRoot,
  ]
  for (const each of guarded) {
    const target = realPathOf(each) ?? path.resolve(each)
    if (contains(real, target))
      throw refused(
        `\`${hostPath}\` is or contains \`${each}\`, which no sandbox may see; name the folder below it that is needed`,
      )
  }
  for (const each of ['/proc', '/dev', '/sys', context.runtimeRoot]) {
    if (contains(realPathOf(each) ?? path.resolve(each), real))
      throw refused(`\`${hostPath}\` is in \`${each}\`, which no sandbox may see`)
  }
  // A socket or a device would be a way to another program.
  const stat = statSync(real)
  if (!stat.isDirectory() && !stat.isFile()) throw refused(`\`${hostPath}\` is neither a folder nor a regular file`)

  const target = path.normalize(inside ?? real)
  if (!path.isAbsolute(target)) throw refused(`\`${inside ?? ''}\` is not an absolute path`)
  for (const each of RESERVED) {
    if (contains(target, each) || contains(each, target))
      throw refused(`\`${target}\` can not be used as a place inside the sandbox`)
  }
  return { hostPath: real, path: target, writable: writable ?? false }
}

function realPathOf(each: string): string | undefined {
  try {
    return realpathSync(each)
  } catch {
    return undefined
  }
}

function contains(folder: string, each: string): boolean {
  const relative = path.relative(folder, each)
  return relative === '' || (relative !== '..' && !relative.startsWith('../'))
}

function refused(message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_NOT_SUPPORTED', message)
}
