/** A machine's files, as a worker's are: bytes go through the SDK, and where they belong is decided inside, by the helper. */
import { randomBytes } from 'node:crypto'
import { ReadableStream } from 'node:stream/web'
import type { SandboxFileEntry, SandboxFileStat } from '../../sandbox.ts'
import { SandboxError } from '../../sandbox-error.ts'
import type { WorkerBytes, WorkerClient } from '../../worker-client.ts'
import { lost } from '../../worker-client/exchange.ts'
import { malformed } from '../../worker-client/lines.ts'
import { pathText, rawPath, type RawPath } from '../../worker/path-text.ts'
import { fileFault, type MachineContext } from './machine-context.ts'
import { decoded } from './machine-script.ts'

type FileMethods = Pick<
  WorkerClient,
  'writeFile' | 'readFile' | 'readFileStream' | 'listFiles' | 'stat' | 'mkdir' | 'remove' | 'move'
>

/** Bytes that `readFile` puts into one array. */
const MAX_READ_BYTES = 1024 * 1024 * 1024
const MAX_LISTED = 2_000_000
const MAX_LISTED_LENGTH = 256 * 1024 * 1024
/** Without a byte of a file for so long its transfer counts as lost. */
const IDLE_MS = 45_000

/** The file methods of a client. */
export function fileMethods(context: MachineContext): FileMethods {
  const { machine, help, spool } = context

  const open = async (
    path: string,
    signal: AbortSignal | undefined,
  ): Promise<{ size: number; bytes: AsyncGenerator<Uint8Array> }> => {
    // prettier-ignore
    const name = randomBytes(12).toString('hex')
    const [, sizeText = '', where = ''] = /^file (\d{1,15}) (\S+)$/.exec((await help('open', [raw(path), name], { signal }))[0] ?? '') ?? [] // prettier-ignore
    if (where === '') throw malformed('a file without a length')
    const size = Number(sizeText)
    const place = Buffer.from(decoded(where), 'latin1').toString('utf8')
    return { size, bytes: transfer(place, size, place === `${spool}/${name}`, signal) }
  }
  async function* transfer(
    place: string,
    size: number,
    isLink: boolean,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Uint8Array> {
    // prettier-ignore
    let left = size
    try {
      if (size > 0) {
        const options = { format: 'stream', streamIdleTimeoutMs: IDLE_MS, ...(signal && { signal }) } as const
        const stream: AsyncIterable<Uint8Array> = await machine.files.read(place, options)
        for await (const chunk of stream) {
          // It may grow meanwhile: it is read as it was.
          const wanted = chunk.subarray(0, left)
          left -= wanted.length
          if (wanted.length > 0) yield wanted
          if (left === 0) return
        }
      }
    } catch (error) {
      signal?.throwIfAborted()
      throw error instanceof Error && error.name === 'FileNotFoundError' ? fileFault('ENOENT') : lost(error)
    } finally {
      if (isLink) await machine.files.remove(place).catch(() => undefined)
    }
    if (left > 0) throw lost(new Error('the file has become shorter'))
  }

  return {
    async writeFile(path, content, { mode, signal } = {}) {
      const target = raw(path)
      const name = randomBytes(12).toString('hex')
      const place = `${spool}/${name}`
      try {
        await upload(context, place, content, signal)
        await help('place', [name, target, mode === undefined ? '' : mode.toString(8)], { signal })
      } catch (error) {
        await machine.files.remove(place).catch(() => undefined)
        throw error
      }
    },
    async readFile(path, options = {}) {
      const { size, bytes } = await open(path, options.signal)
      if (size > MAX_READ_BYTES) throw fileFault('too_large')
      const whole = new Uint8Array(size)
      let at = 0
      for await (const chunk of bytes) {
        whole.set(chunk, at)
        at += chunk.length
      }
      return whole
    },
    async *readFileStream(path, options = {}) {
      yield* (await open(path, options.signal)).bytes
    },
    async listFiles(path = '.', options = {}) {
      const lines = await help('list', [raw(path)], { ...options, maxLength: MAX_LISTED_LENGTH })
      if (lines.length > MAX_LISTED) throw fileFault('too_many')
      const files: SandboxFileEntry[] = lines.map((line) => {
        const [, size, name] = /^f (\d{1,15}) (\/\S*)$/.exec(line) ?? []
        if (name === undefined) throw malformed('an entry of a list is none')
        return { path: pathText(decoded(name)), size: Number(size) }
      })
      return files.sort((a, b) => (a.path < b.path ? -1 : 1))
    },
    async stat(path) {
      const [line = ''] = await help('stat', [raw(path)])
      return line === 'none' ? undefined : parseStat(line)
    },
    mkdir: async (path) => {
      await help('mkdir', [raw(path)])
    },
    remove: async (path) => {
      await help('remove', [raw(path)])
    },
    move: async (from, to) => {
      await help('move', [raw(from), raw(to)])
    },
  }
}

/** Into the spool. Bytes that fit are sent at once, the rest as a stream. @throws whatever the caller's stream throws */
async function upload(
  { machine }: MachineContext,
  place: string,
  content: WorkerBytes,
  signal: AbortSignal | undefined,
): Promise<void> {
  let sourceFault: { readonly error: unknown } | undefined
  const options = { useOctetStream: true, ...(signal && { signal }) }
  try {
    if (typeof content === 'string' || content instanceof Uint8Array) {
      const bytes = typeof content === 'string' ? Buffer.from(content) : content
      await machine.files.write(place, new Blob([new Uint8Array(bytes)]), options)
      return
    }
    const source = content[Symbol.asyncIterator]()
    const stream = new ReadableStream<Uint8Array>({
      async pull(controller) {
        try {
          const next = await source.next()
          if (next.done === true) controller.close()
          else controller.enqueue(next.value)
        } catch (error) {
          sourceFault = { error }
          controller.error(error)
        }
      },
      cancel: async () => {
        await source.return?.()
      },
    })
    await machine.files.write(place, stream as never, options)
  } catch (error) {
    signal?.throwIfAborted()
    if (sourceFault !== undefined) throw sourceFault.error
    if (error instanceof Error && error.name === 'NotEnoughSpaceError') throw fileFault('ENOSPC')
    throw error instanceof SandboxError ? error : lost(error)
  }
}

function parseStat(line: string): SandboxFileStat {
  const [, kind, size, mode, modifiedMs, name] = /^stat (file|directory|other) (\d{1,15}) (\d{1,5}) (-?\d{1,15}) (\/\S*)$/.exec(line) ?? [] // prettier-ignore
  if (name === undefined) throw malformed('`stat` is none')
  return {
    path: pathText(decoded(name)),
    kind: kind === 'file' || kind === 'directory' ? kind : 'other',
    size: Number(size),
    mode: Number(mode),
    modifiedMs: Number(modifiedMs),
  }
}

function raw(path: string): RawPath {
  const bytes = path === '' ? undefined : rawPath(path)
  if (bytes === undefined)
    throw new TypeError('a path is not empty and holds neither NUL nor a surrogate that stands for no byte')
  return bytes
}
