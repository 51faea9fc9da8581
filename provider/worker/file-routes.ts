/** `/files`: raw bytes in and out, of any size; and the JSON forms for small files. */
import type http from 'node:http'
import { pipeline } from 'node:stream/promises'
import { readJson } from './body.ts'
import { integer, parseObject, text } from './command.ts'
import type { Confinement } from './confinement.ts'
import { openEventStream } from './event-stream.ts'
import { Fault, faultOf } from './fault.ts'
import { openFile, writeFile } from './files.ts'
import { listFiles } from './folders.ts'
import { queryField, rawPath, type RawPath } from './path-text.ts'

// Bytes of a file that go as JSON; larger ones go raw.
const MAX_JSON_FILE_BYTES = 8 * 1024 * 1024

/** `GET /files?path=`: a content-length, and exactly that many bytes or a broken connection. */
export async function sendFile(
  confinement: Confinement,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): Promise<void> {
  const { size, bytes } = await openFile(confinement, pathOf(request))
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': size })
  if (size === 0) {
    bytes.destroy()
    response.end()
    return
  }
  // A file that shrank or cannot be read leaves the reply short of its length, and the connection closes: nobody takes it for whole.
  await pipeline(bytes, response).catch(() => response.destroy())
}

/** `PUT /files?path=&mode=`: the body as it is. */
export async function receiveFile(confinement: Confinement, request: http.IncomingMessage): Promise<object> {
  const mode = queryField(request.url ?? '', 'mode')
  if (mode !== undefined && !/^[0-7]{3,4}$/.test(mode))
    throw new Fault('bad_request', '`mode` is not three or four octal digits')
  // A write that fails leaves the request open: a connection that is closed at once may take the reply with it.
  const bytes = request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
  return writeFile(confinement, pathOf(request), bytes, mode === undefined ? undefined : parseInt(mode, 8))
}

/** `GET /files/list?path=`: one object a line, and `end` with their number. */
export async function sendList(
  confinement: Confinement,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): Promise<void> {
  const folder = queryField(request.url ?? '', 'path') ?? '.'
  checkPath(folder)
  const stream = openEventStream(response)
  let count = 0
  try {
    for await (const file of listFiles(confinement, folder)) {
      if (stream.closed) return
      count += 1
      if (!stream.write(`${JSON.stringify({ type: 'file', ...file })}\n`)) await stream.drained()
    }
    stream.end({ type: 'end', count })
  } catch (error) {
    const { code, message } = faultOf(error)
    stream.end({ type: 'error', code, error: message })
  }
}

/** `POST /read-file {path}` → `{content, encoding: 'base64'}` */
export async function readFileJson(confinement: Confinement, request: http.IncomingMessage): Promise<object> {
  const { size, bytes } = await openFile(confinement, pathField(await readObject(request), 'path'))
  if (size > MAX_JSON_FILE_BYTES) {
    bytes.destroy()
    throw new Fault('too_large', `the file has more than ${MAX_JSON_FILE_BYTES} bytes: use GET /files`)
  }
  const pieces: Buffer[] = []
  for await (const piece of bytes as AsyncIterable<Buffer>) pieces.push(piece)
  return { encoding: 'base64', content: Buffer.concat(pieces).toString('base64') }
}

/** `POST /write-file {path, content, encoding?: 'base64' | 'utf8', mode?}` */
export async function writeFileJson(confinement: Confinement, request: http.IncomingMessage): Promise<object> {
  const fields = await readObject(request)
  const content = text(fields, 'content', true)
  const encoding = text(fields, 'encoding') ?? 'utf8'
  if (content === undefined) throw new Fault('bad_request', '`content` is missing')
  if (encoding !== 'base64' && encoding !== 'utf8')
    throw new Fault('bad_request', '`encoding` is neither `base64` nor `utf8`')
  return writeFile(
    confinement,
    pathField(fields, 'path'),
    Buffer.from(content, encoding),
    integer(fields, 'mode', 0, 0o7777),
  )
}

/** The object a request carries. */
export async function readObject(request: http.IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  return parseObject(await readJson(request))
}

/** A path in JSON, as bytes. @throws Fault `bad_request` */
export function pathField(fields: Readonly<Record<string, unknown>>, name: string): RawPath {
  const value = text(fields, name)
  const raw = value === undefined || value === '' ? undefined : rawPath(value)
  if (raw === undefined) throw new Fault('bad_request', `\`${name}\` is not a path`)
  return raw
}

/** The path in a query, as bytes. @throws Fault `bad_request` */
export function pathOf(request: http.IncomingMessage): RawPath {
  const raw = queryField(request.url ?? '', 'path')
  if (raw === undefined || raw === '') throw new Fault('bad_request', '`path` is missing')
  checkPath(raw)
  return raw
}

function checkPath(raw: RawPath): void {
  if (raw.includes('\0')) throw new Fault('bad_request', '`path` holds NUL')
}
