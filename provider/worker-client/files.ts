/** A worker's files, from outside. */
import type { SandboxFileEntry, SandboxFileStat } from '../sandbox.ts'
import { SandboxError } from '../sandbox-error.ts'
import type { WorkerBytes, WorkerClient } from '../worker-client.ts'
import { rawPath, rawToQuery } from '../worker/path-text.ts'
import { act, bytesOf, call, jsonBody, refuse } from './call.ts'
import { exchange, lost, type Link } from './exchange.ts'
import { count, jsonLines, malformed, parseListEvent } from './lines.ts'
import { WorkerFault } from './worker-fault.ts'

/** Bytes that `readFile` puts into one array. */
const MAX_READ_BYTES = 1024 * 1024 * 1024
/** Files, and characters of their paths, in one list. */
const MAX_LISTED = 2_000_000
const MAX_LISTED_LENGTH = 256 * 1024 * 1024

type FileMethods = Pick<
  WorkerClient,
  'writeFile' | 'readFile' | 'readFileStream' | 'listFiles' | 'stat' | 'mkdir' | 'remove' | 'move'
>

/** The file methods of a client. */
export function fileMethods(link: Link): FileMethods {
  return {
    async writeFile(path, content, options = {}) {
      const mode = options.mode === undefined ? '' : `&mode=${options.mode.toString(8).padStart(3, '0')}`
      await call(link, fileFault, {
        method: 'PUT',
        path: `/files?path=${query(path)}${mode}`,
        headers: { 'content-type': 'application/octet-stream', ...lengthOf(content) },
        body: bytesOf(content),
        signal: options.signal,
      })
    },

    async readFile(path, options = {}) {
      const { size, chunks } = await open(link, path, options.signal)
      if (size > MAX_READ_BYTES) {
        await chunks.return(undefined)
        throw fileFault('too_large', `the file has more than ${MAX_READ_BYTES} bytes: use readFileStream`)
      }
      const bytes = new Uint8Array(size)
      let at = 0
      for await (const chunk of chunks) {
        bytes.set(chunk, at)
        at += chunk.length
      }
      return bytes
    },

    async *readFileStream(path, options = {}) {
      yield* (await open(link, path, options.signal)).chunks
    },

    async listFiles(path = '.', options = {}) {
      const reply = await exchange(link, {
        method: 'GET',
        path: `/files/list?path=${query(path)}`,
        signal: options.signal,
      })
      if (reply.status !== 200) throw await refuse(reply, fileFault)
      const files: SandboxFileEntry[] = []
      let length = 0
      for await (const line of jsonLines(reply.chunks())) {
        const event = parseListEvent(line)
        if (event.type === 'ping') continue
        if (event.type === 'error') throw fileFault(event.code, event.error)
        if (event.type === 'end') {
          if (event.count !== files.length) throw malformed('entries are missing from the list')
          return files.sort((a, b) => (a.path < b.path ? -1 : 1))
        }
        files.push({ path: event.path, size: event.size })
        length += event.path.length
        if (files.length > MAX_LISTED || length > MAX_LISTED_LENGTH)
          throw fileFault('too_many', 'the folder holds too many files to list')
      }
      throw lost(new Error('the list has no end'))
    },

    async stat(path) {
      const { stat } = await call(link, fileFault, { method: 'GET', path: `/files/stat?path=${query(path)}` })
      return stat === null ? undefined : parseStat(stat)
    },
    mkdir: async (path) =>
      act(link, fileFault, { method: 'POST', path: '/files/mkdir', ...jsonBody({ path: checked(path) }) }),
    remove: async (path) =>
      act(link, fileFault, { method: 'POST', path: '/files/remove', ...jsonBody({ path: checked(path) }) }),
    move: async (from, to) =>
      act(link, fileFault, {
        method: 'POST',
        path: '/files/move',
        ...jsonBody({ from: checked(from), to: checked(to) }),
      }),
  }
}

async function open(
  link: Link,
  path: string,
  signal: AbortSignal | undefined,
): Promise<{ size: number; chunks: AsyncGenerator<Buffer> }> {
  const reply = await exchange(link, { method: 'GET', path: `/files?path=${query(path)}`, signal })
  if (reply.status !== 200) throw await refuse(reply, fileFault)
  const size = Number(reply.headers['content-length'])
  if (!Number.isSafeInteger(size)) {
    reply.destroy()
    throw malformed('a file without a length')
  }
  return { size, chunks: reply.chunks() }
}

function parseStat(value: unknown): SandboxFileStat {
  if (typeof value !== 'object' || value === null) throw malformed('`stat` is no object')
  const fields = value as Record<string, unknown>
  const { path, kind } = fields
  if (typeof path !== 'string' || !path.startsWith('/')) throw malformed('`path` is no path')
  if (kind !== 'file' && kind !== 'directory' && kind !== 'other') throw malformed('`kind` is unknown')
  return {
    path,
    kind,
    size: count(fields, 'size'),
    mode: count(fields, 'mode'),
    modifiedMs: count(fields, 'modifiedMs'),
  }
}

function fileFault(code: string, message: string): SandboxError {
  return new SandboxError('SALLYPORT_SANDBOX_FILE_FAILED', message, { cause: new WorkerFault(code, message) })
}

function query(path: string): string {
  return rawToQuery(raw(path))
}

function checked(path: string): string {
  raw(path)
  return path
}

function raw(path: string): string {
  const bytes = path === '' ? undefined : rawPath(path)
  if (bytes === undefined)
    throw new TypeError('a path is not empty and holds neither NUL nor a surrogate that stands for no byte')
  return bytes
}

function lengthOf(content: WorkerBytes): Readonly<Record<string, string>> {
  if (typeof content === 'string') return { 'content-length': String(Buffer.byteLength(content)) }
  return content instanceof Uint8Array ? { 'content-length': String(content.length) } : {}
}
