/** Reads and checks the settings. A file is removed once it is read: what it holds is for the worker alone. */
import fs from 'node:fs'
import { integer, parseEnvironment, parseObject, text } from './command.ts'
import { Fault } from './fault.ts'
import { parseGatewayToken } from './gateway-way.ts'
import type { WorkerForward, WorkerGateway, WorkerPipes, WorkerRoot, WorkerSettings } from './settings.ts'

const MAX_BYTES = 4 * 1024 * 1024
const MIN_TOKEN_LENGTH = 32

/** From a file, or with `-` the first line of stdin. @throws Error that names the fault, never the token */
export function readSettings(source: string): WorkerSettings {
  const json = source === '-' ? readFirstLine(0) : fs.readFileSync(source, 'utf8')
  if (source !== '-') {
    try {
      fs.unlinkSync(source)
    } catch {
      // On a read-only mount it stays.
    }
  }
  let document: unknown
  try {
    document = JSON.parse(json)
  } catch {
    // The parser's own message quotes the text.
    throw new Error('the settings are not JSON')
  }
  return parseSettings(document)
}

/** @throws Fault that names the field */
export function parseSettings(document: unknown): WorkerSettings {
  const fields = parseObject(document, 'settings')
  const token = parseToken(fields['token'])
  const timeToLiveMs = integer(fields, 'timeToLiveMs', 1, Number.MAX_SAFE_INTEGER)
  return {
    token,
    listen: parseListen(parseObject(fields['listen'], 'listen')),
    roots: list(fields['roots'], 'roots').map(parseRoot),
    env: parseEnvironment(fields['env']),
    inheritEnv: fields['inheritEnv'] === true,
    forward: list(fields['forward'] ?? [], 'forward').map(parseForward),
    ...(fields['gateway'] !== undefined && { gateway: parseGateway(parseObject(fields['gateway'], 'gateway')) }),
    ...(timeToLiveMs !== undefined && { timeToLiveMs }),
    ...(fields['probe'] !== undefined && { probe: parseObject(fields['probe'], 'probe') }),
    ...(fields['pipes'] !== undefined && { pipes: parsePipes(parseObject(fields['pipes'], 'pipes')) }),
    announce: fields['announce'] === true,
    endWithStdin: fields['endWithStdin'] === true,
  }
}

/** The bearer. @throws Fault `bad_request`, without the text */
export function parseToken(value: unknown): string {
  if (typeof value === 'string' && value.length >= MIN_TOKEN_LENGTH && !/[^\x21-\x7e]/.test(value)) return value
  throw new Fault('bad_request', `\`token\` is not ${MIN_TOKEN_LENGTH} or more visible ASCII characters`)
}

function parseListen(fields: Readonly<Record<string, unknown>>): WorkerSettings['listen'] {
  const fd = integer(fields, 'fd', 3, 1_023)
  if (fd !== undefined) return { fd }
  if (fields['path'] === undefined)
    return { host: required(fields, 'host'), port: integer(fields, 'port', 0, 65_535) ?? 2024 }
  const mode = integer(fields, 'mode', 0, 0o777)
  return { path: required(fields, 'path'), ...(mode !== undefined && { mode }) }
}

function parseRoot(value: unknown): WorkerRoot {
  const fields = parseObject(value, 'roots')
  return { path: required(fields, 'path'), writable: fields['writable'] === true }
}

function parseForward(value: unknown): WorkerForward {
  const fields = parseObject(value, 'forward')
  return {
    host: required(fields, 'host'),
    port: integer(fields, 'port', 0, 65_535) ?? 3128,
    path: required(fields, 'path'),
  }
}

function parsePipes(fields: Readonly<Record<string, unknown>>): WorkerPipes {
  const descriptors = list(fields['descriptors'], 'descriptors')
  const mark = required(fields, 'mark')
  if (!descriptors.every((fd) => typeof fd === 'number' && Number.isInteger(fd) && fd > 2 && fd < 1_024))
    throw new Error('`descriptors` holds something else than numbers from 3 to 1023')
  if (!/^[0-9a-f]{32}$/.test(mark)) throw new Error('`mark` is not 32 hexadecimal digits')
  return { descriptors: descriptors as readonly number[], mark }
}

function parseGateway(fields: Readonly<Record<string, unknown>>): WorkerGateway {
  const url = required(fields, 'url')
  const parsed = URL.parse(url)
  if (parsed?.protocol !== 'http:' && parsed?.protocol !== 'https:')
    throw new Error('the `url` of `gateway` is not `http:` or `https:`')
  const [ca, token] = [text(fields, 'ca'), parseGatewayToken(fields['token'])]
  return {
    host: required(fields, 'host'),
    port: integer(fields, 'port', 0, 65_535) ?? 3128,
    url,
    ...(ca !== undefined && { ca }),
    ...(token !== undefined && { token }),
  }
}

function list(value: unknown, name: string): readonly unknown[] {
  if (Array.isArray(value)) return value
  throw new Error(`\`${name}\` is not a list`)
}

function required(fields: Readonly<Record<string, unknown>>, name: string): string {
  const value = text(fields, name)
  if (value === undefined || value === '') throw new Error(`\`${name}\` is missing`)
  return value
}

function readFirstLine(fd: number): string {
  const pieces: Buffer[] = []
  for (let bytes = 0; bytes < MAX_BYTES;) {
    const piece = Buffer.alloc(64 * 1024)
    const count = readSome(fd, piece)
    if (count === 0) break
    bytes += count
    const lineEnd = piece.subarray(0, count).indexOf(10)
    pieces.push(piece.subarray(0, lineEnd < 0 ? count : lineEnd))
    if (lineEnd >= 0) break
  }
  return Buffer.concat(pieces).toString('utf8')
}

function readSome(fd: number, buffer: Buffer): number {
  for (;;) {
    try {
      return fs.readSync(fd, buffer)
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (code === 'EOF') return 0
      if (code !== 'EAGAIN') throw error
      // A stdin that somebody made non-blocking.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2)
    }
  }
}
