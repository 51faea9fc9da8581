/** A session of the OpenAI Agents SDK over one sandbox: its shell, its files, its editor. */
import type { Editor } from '@openai/agents'
import type { ExecCommandArgs, Manifest, SandboxExecResult, SandboxSession } from '@openai/agents/sandbox'
import type { Sandbox } from '../sandbox.ts'
import { materialize } from './openai-manifest.ts'
import { readAtMost, readWhole } from './read-at-most.ts'
import { cut, faultText, inFolder } from './sandbox-tools.ts'

type Agents = typeof import('@openai/agents')
type Sdk = typeof import('@openai/agents/sandbox')

/** How a session behaves. */
export interface AgentsSandboxOptions {
  /** Seconds that one command may take; 120 by default. */
  readonly timeoutSeconds?: number
  /** Bytes of each stream that one command gives back; 256 KiB by default. The model may ask for less. */
  readonly maxOutputBytes?: number
  /** Kills commands. */
  readonly signal?: AbortSignal
}

interface SessionParts extends AgentsSandboxOptions {
  readonly manifest: Manifest
  readonly environment: Record<string, string>
  /** Destroyed with the session. */
  readonly isOwned: boolean
}

const TIMEOUT_SECONDS = 120
const MAX_OUTPUT_BYTES = 256 * 1024
/** Of one file that is read or patched. */
const MAX_FILE_BYTES = 32 * 1024 * 1024
/** By the SDK's own measure. */
const BYTES_PER_TOKEN = 4
/** The SDK's own limit for `view_image`. */
const MAX_IMAGE_BYTES = 10 * 1024 * 1024

/** Makes it. */
export function makeSession(agents: Agents, sdk: Sdk, sandbox: Sandbox, parts: SessionParts): SandboxSession {
  const { isOwned, signal, timeoutSeconds = TIMEOUT_SECONDS, maxOutputBytes = MAX_OUTPUT_BYTES } = parts
  const { version, entries, environment } = parts.manifest
  const state = {
    manifest: new sdk.Manifest({ version, entries, environment, root: sandbox.rootDir }),
    environment: parts.environment,
    workspaceReady: true,
    sandboxId: sandbox.id,
  }
  const refuse = (what: string): never => {
    throw new sdk.SandboxUnsupportedFeatureError(`${what} can not be had in this sandbox`)
  }
  const asOwner = (runAs: string | undefined): void => {
    if (runAs !== undefined) refuse('`runAs`')
  }
  const run = async ({ cmd, workdir, shell, tty, maxOutputTokens, runAs }: ExecCommandArgs) => {
    asOwner(runAs)
    if (tty === true) refuse('a terminal')
    const [command, argv] = shell === undefined ? [cmd] : [shell, ['-c', cmd]]
    return sandbox.exec(command, argv, {
      cwd: inFolder(sandbox.rootDir, workdir),
      env: state.environment,
      timeout: Math.ceil(timeoutSeconds * 1000),
      maxOutputBytes: Math.min(maxOutputBytes, (maxOutputTokens ?? Infinity) * BYTES_PER_TOKEN),
      ...(signal && { signal }),
    })
  }
  const exec = async (args: ExecCommandArgs): Promise<SandboxExecResult> => {
    const { stdout, stderr, exitCode, durationMs, timedOut, stdoutTruncated, stderrTruncated } = await run(args)
    const marks = [
      cut(stdoutTruncated, 'stdout'),
      cut(stderrTruncated, 'stderr'),
      timedOut ? `[timed out after ${timeoutSeconds} s]` : '',
    ]
    const output = [stdout, stderr, ...marks].filter((part) => part !== '').join('\n')
    return { output, stdout, stderr, exitCode, wallTimeSeconds: durationMs / 1000 }
  }
  const statOf = (path: string) => sandbox.stat(inFolder(sandbox.rootDir, path))

  return {
    state,
    running: () => Promise.resolve(sandbox.status !== 'destroyed'),
    supportsPty: () => false,
    exec,
    execCommand: async (args) => {
      try {
        const { output, exitCode = 0, wallTimeSeconds } = await exec(args)
        return `Wall time: ${wallTimeSeconds.toFixed(3)} seconds\nProcess exited with code ${exitCode ?? 0}\nOutput:\n${output}`
      } catch (error) {
        // The SDK would tell the model no more than that something failed.
        if (error instanceof sdk.SandboxError) return error.message
        signal?.throwIfAborted()
        return faultText(error)
      }
    },
    readFile: async ({ path, runAs, maxBytes = MAX_FILE_BYTES }) => {
      asOwner(runAs)
      return readAtMost(sandbox, inFolder(sandbox.rootDir, path), Math.min(maxBytes, MAX_FILE_BYTES))
    },
    listDir: async ({ path, runAs }) => {
      asOwner(runAs)
      return listFolder(sandbox, inFolder(sandbox.rootDir, path))
    },
    pathExists: async (path) => (await statOf(path)) !== undefined,
    directoryExists: async (path) => (await statOf(path))?.kind === 'directory',
    viewImage: async ({ path, runAs }) => {
      asOwner(runAs)
      const stat = await statOf(path)
      if (stat === undefined) throw new sdk.SandboxError(`not found: ${path}`)
      if (stat.kind !== 'file') throw new sdk.SandboxError(`not a file: ${path}`)
      if (stat.size > MAX_IMAGE_BYTES) throw new sdk.SandboxError(`exceeds the 10 MB limit: ${path}`)
      const data = await readAtMost(sandbox, inFolder(sandbox.rootDir, path), MAX_IMAGE_BYTES)
      const mediaType = imageType(data)
      if (mediaType === undefined) throw new sdk.SandboxError(`unsupported image format: ${path}`)
      return { type: 'image', image: { data, mediaType } }
    },
    createEditor: (runAs) => {
      asOwner(runAs)
      return editorOf(agents, sandbox)
    },
    materializeEntry: async ({ path, entry, runAs }) => {
      asOwner(runAs)
      await materialize(sdk, sandbox, { [path]: entry })
    },
    ...(isOwned && { close: () => sandbox.destroy() }),
  }
}

/** Applies the diffs of `apply_patch`. What goes wrong is a failed operation, not a crash. */
function editorOf({ applyDiff }: Agents, sandbox: Sandbox): Editor {
  const attempt = async (work: () => Promise<unknown>) => {
    try {
      await work()
      return { status: 'completed' as const }
    } catch (error) {
      const output = error instanceof PatchError ? error.message : faultText(error)
      return { status: 'failed' as const, output }
    }
  }
  const patched = (before: string, diff: string, mode?: 'create'): string => {
    try {
      return applyDiff(before, diff, mode)
    } catch (error) {
      throw new PatchError(error instanceof Error ? error.message : 'the diff can not be applied')
    }
  }
  const existing = async (path: string): Promise<string> => {
    const place = inFolder(sandbox.rootDir, path)
    if ((await sandbox.stat(place))?.kind !== 'file') throw new PatchError(`there is no file \`${path}\``)
    return place
  }
  return {
    createFile: ({ path, diff }) =>
      attempt(() => sandbox.writeFile(inFolder(sandbox.rootDir, path), patched('', diff, 'create'))),
    updateFile: ({ path, diff, moveTo }) =>
      attempt(async () => {
        const place = await existing(path)
        const before = await readWhole(sandbox, place, MAX_FILE_BYTES)
        if (before === undefined) throw new PatchError(`\`${path}\` is too large to be patched`)
        const after = patched(Buffer.from(before).toString('utf8'), diff)
        const target = moveTo === undefined ? place : inFolder(sandbox.rootDir, moveTo)
        await sandbox.writeFile(target, after)
        if (target !== place) await sandbox.remove(place)
      }),
    deleteFile: ({ path }) => attempt(async () => sandbox.remove(await existing(path))),
  }
}

class PatchError extends Error {}

/** Direct children of a folder. */
async function listFolder(sandbox: Sandbox, folder: string) {
  // NUL between the fields, since names may hold anything else; and no `find -printf`, which not every image has.
  const line = String.raw`cd -- "$1" && for name in * .[!.]* ..?*; do
    if [ -d "$name" ]; then type=dir; elif [ -f "$name" ]; then type=file; elif [ -e "$name" ] || [ -L "$name" ]; then type=other; else continue; fi
    printf '%s\0%s\0' "$type" "$name"
  done`
  const { stdout } = await sandbox.exec('sh', ['-c', line, 'sh', folder])
  const fields = stdout.split('\0')
  return Array.from({ length: Math.floor(fields.length / 2) }, (_, index) => {
    const name = fields[index * 2 + 1] ?? ''
    return { name, path: `${folder}/${name}`, type: (fields[index * 2] ?? 'other') as 'file' | 'dir' | 'other' }
  })
}

/** By the first bytes. */
function imageType(bytes: Uint8Array): string | undefined {
  const head = Buffer.from(bytes.subarray(0, 12)).toString('latin1')
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png'
  if (head.startsWith('\xff\xd8\xff')) return 'image/jpeg'
  if (/^GIF8[79]a/.test(head)) return 'image/gif'
  return /^RIFF[^]{4}WEBP/.test(head) ? 'image/webp' : undefined
}
