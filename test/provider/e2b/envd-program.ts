/**
 * Stands in for envd, which runs in each machine of E2B: carries out processes and files for real, on the machine that it is started on. Says nothing of
 * whether a request is as it should be: the contract server in front of it does that. Bundled into a guest, so it uses Node alone.
 *
 * `ENVD_SETTINGS`: JSON of {@link EnvdSettings}.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'

export interface EnvdSettings {
  readonly host: string
  readonly port: number
  /** Of commands that name nobody. */
  readonly user: { readonly uid: number; readonly gid: number; readonly home: string; readonly name: string }
  /** Commands become that user; otherwise they run as whoever runs this. */
  readonly becomes: boolean
}

type Fields = Readonly<Record<string, unknown>>

class ConnectFault extends Error {
  readonly code: string
  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

interface Running {
  readonly child: ChildProcess
  readonly config: Fields
  readonly listeners: Set<(event: Fields) => void>
}

const settings = JSON.parse(process.env['ENVD_SETTINGS'] ?? '{}') as EnvdSettings
const running = new Map<number, Running>()
const KEEPALIVE_MS = 20_000
// Its names for signals are Go's.
const SIGNAL_NAMES: Readonly<Record<string, string>> = { SIGKILL: 'killed', SIGTERM: 'terminated', SIGINT: 'interrupt', SIGHUP: 'hangup', SIGSEGV: 'segmentation fault', SIGABRT: 'aborted', SIGPIPE: 'broken pipe' } // prettier-ignore

function start(request: Fields, isRoot: boolean, emit: (event: Fields) => void, finish: () => void): void {
  const { cmd, args = [], envs = {}, cwd } = request['process'] as { cmd: string; args?: string[]; envs?: Record<string, string>; cwd?: string } // prettier-ignore
  const { uid, gid, home, name } = settings.user
  const folder = cwd ?? (isRoot ? '/' : home)
  if (!fs.existsSync(folder)) throw new ConnectFault('invalid_argument', `cwd '${folder}' does not exist`)
  const own = isRoot ? { HOME: '/root', USER: 'root', LOGNAME: 'root' } : { HOME: home, USER: name, LOGNAME: name }
  // As there: not the leader of a group of its own.
  const child = spawn(cmd, args, {
    cwd: folder,
    env: { PATH: process.env['PATH'], ...own, ...envs },
    stdio: [request['stdin'] === false ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    ...(settings.becomes && !isRoot && { uid, gid }),
  })
  child.once('error', () => undefined)
  const { pid } = child
  if (pid === undefined) throw new ConnectFault('internal', `fork/exec ${cmd}: no such file or directory`)
  child.stdin?.on('error', () => undefined)
  const listeners = new Set([emit])
  running.set(pid, { child, config: request['process'] as Fields, listeners })
  const tell = (event: Fields): void => {
    for (const listener of listeners) listener(event)
  }
  tell({ start: { pid } })
  for (const stream of ['stdout', 'stderr'] as const)
    child[stream]?.on('data', (chunk: Buffer) => tell({ data: { [stream]: chunk.toString('base64') } }))
  // As there: not before the pipes are closed, whoever holds them.
  child.once('close', (code, signal) => {
    running.delete(pid)
    const status = signal === null ? `exit status ${code ?? 0}` : `signal: ${SIGNAL_NAMES[signal] ?? signal}`
    tell({ end: { exitCode: signal === null ? (code ?? 0) : -1, exited: signal === null, status, ...(status !== 'exit status 0' && { error: status }) } }) // prettier-ignore
    finish()
  })
}

function selected(request: Fields): Running {
  const { pid } = (request['process'] ?? {}) as { pid?: number }
  const found = running.get(pid ?? 0)
  if (found === undefined) throw new ConnectFault('not_found', `process with pid ${pid ?? 0} not found`)
  return found
}

async function process_(method: string, request: Fields): Promise<Fields> {
  switch (method) {
    case 'List':
      return { processes: [...running].map(([pid, { config }]) => ({ config, pid })) }
    case 'SendInput': {
      const { child } = selected(request)
      const { stdin = '' } = request['input'] as { stdin?: string }
      if (child.stdin?.writable !== true) throw new ConnectFault('failed_precondition', 'stdin not enabled or closed')
      const { stdin: pipe } = child
      await new Promise<void>((resolve, reject) => {
        pipe.write(Buffer.from(stdin, 'base64'), (error) => (error ? reject(new ConnectFault('internal', `error writing to stdin: ${error.message}`)) : resolve())) // prettier-ignore
      })
      return {}
    }
    case 'CloseStdin':
      selected(request).child.stdin?.end()
      return {}
    case 'SendSignal':
      // To that process alone.
      selected(request).child.kill(request['signal'] === 'SIGNAL_SIGTERM' ? 'SIGTERM' : 'SIGKILL')
      return {}
    default:
      throw new ConnectFault('unimplemented', method)
  }
}

function entryOf(file: string): Fields {
  const stats = fs.lstatSync(file)
  const type = stats.isDirectory() ? 'FILE_TYPE_DIRECTORY' : stats.isSymbolicLink() ? 'FILE_TYPE_SYMLINK' : 'FILE_TYPE_FILE' // prettier-ignore
  return { name: path.basename(file), type, path: file, size: String(stats.size), mode: stats.mode & 0o7777, permissions: '', owner: '', group: '', modifiedTime: stats.mtime.toISOString() } // prettier-ignore
}

function own(file: string): void {
  if (settings.becomes) fs.lchownSync(file, settings.user.uid, settings.user.gid)
}

function makeFolders(folder: string): void {
  if (fs.existsSync(folder)) return
  makeFolders(path.dirname(folder))
  fs.mkdirSync(folder, { mode: 0o755 })
  own(folder)
}

function filesystem(method: string, request: Fields): Fields {
  const at = (name: string): string => path.resolve(settings.user.home, String(request[name]))
  const needed = (file: string): string => {
    if (fs.lstatSync(file, { throwIfNoEntry: false }) === undefined)
      throw new ConnectFault('not_found', `path not found: ${file}`)
    return file
  }
  switch (method) {
    case 'Stat':
      return { entry: entryOf(needed(at('path'))) }
    case 'MakeDir':
      if (fs.existsSync(at('path'))) throw new ConnectFault('already_exists', 'directory already exists')
      makeFolders(at('path'))
      return { entry: entryOf(at('path')) }
    case 'Remove':
      fs.rmSync(at('path'), { recursive: true, force: true })
      return {}
    case 'Move':
      fs.renameSync(needed(at('source')), at('destination'))
      return { entry: entryOf(at('destination')) }
    case 'ListDir':
      return { entries: fs.readdirSync(needed(at('path'))).map((name) => entryOf(path.join(at('path'), name))) }
    default:
      throw new ConnectFault('unimplemented', method)
  }
}

function frame(flags: number, value: Fields): Buffer {
  const bytes = Buffer.from(JSON.stringify(value))
  const head = Buffer.alloc(5)
  head.writeUInt8(flags, 0)
  head.writeUInt32BE(bytes.length, 1)
  return Buffer.concat([head, bytes])
}

/** `Start` and `Connect`: events until the end of the process, or of whoever listens. */
function stream(method: string, body: Buffer, isRoot: boolean, response: http.ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/connect+json' })
  const alive = setInterval(() => response.write(frame(0, { event: { keepalive: {} } })), KEEPALIVE_MS)
  const emit = (event: Fields): void => {
    // Slow readers hold up the process, as a pipe does.
    if (response.write(frame(0, { event })) || method !== 'Start') return
    const pid = mine
    const { stdout, stderr } = running.get(pid)?.child ?? {}
    stdout?.pause()
    stderr?.pause()
    response.once('drain', () => {
      stdout?.resume()
      stderr?.resume()
    })
  }
  let mine = 0
  const finish = (): void => {
    clearInterval(alive)
    response.end(frame(2, {}))
  }
  try {
    const request = JSON.parse(body.subarray(5).toString()) as Fields
    if (method === 'Start') {
      start(request, isRoot, (event) => {
        mine ||= (event['start'] as { pid?: number } | undefined)?.pid ?? 0
        emit(event)
      }, finish) // prettier-ignore
    } else {
      const found = selected(request)
      emit({ start: { pid: found.child.pid ?? 0 } })
      found.listeners.add(emit)
      found.child.once('close', finish)
    }
    response.once('close', () => {
      clearInterval(alive)
      const process = running.get(mine)
      process?.listeners.delete(emit)
      process?.child.stdout?.resume()
      process?.child.stderr?.resume()
    })
  } catch (error) {
    clearInterval(alive)
    const { code = 'internal', message = '' } = error as Partial<ConnectFault>
    response.end(frame(2, { error: { code, message } }))
  }
}

async function files(request: http.IncomingMessage, url: URL, response: http.ServerResponse): Promise<void> {
  const file = path.resolve(settings.user.home, url.searchParams.get('path') ?? '')
  const refuse = (status: number, message: string): void => {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ code: status, message }))
  }
  if (request.method === 'GET') {
    const stats = fs.statSync(file, { throwIfNoEntry: false })
    if (stats === undefined) {
      refuse(404, `path '${file}' does not exist`)
      return
    }
    if (!stats.isFile()) {
      refuse(400, `path '${file}' is not a regular file`)
      return
    }
    response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': stats.size })
    await pipeline(fs.createReadStream(file, { end: Math.max(0, stats.size - 1) }), response).catch(() => undefined)
    return
  }
  makeFolders(path.dirname(file))
  if (request.headers['content-type'] === 'application/octet-stream') {
    await pipeline(request, fs.createWriteStream(file))
  } else {
    // Its own form of upload is read whole: small things come by it.
    const form = await new Request('http://envd/', { method: 'POST', headers: { 'content-type': request.headers['content-type'] ?? '' }, body: request as unknown as ReadableStream, duplex: 'half' } as RequestInit).formData() // prettier-ignore
    const part = form.get('file') as File
    fs.writeFileSync(file, Buffer.from(await part.arrayBuffer()))
  }
  own(file)
  response.writeHead(200, { 'content-type': 'application/json' })
  response.end(JSON.stringify([{ name: path.basename(file), type: 'file', path: file }]))
}

http
  .createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://envd')
    const [, service = '', method = ''] = url.pathname.split('/')
    const isRoot = /^Basic /.test(request.headers.authorization ?? '') && Buffer.from((request.headers.authorization ?? '').slice(6), 'base64').toString() === 'root:' // prettier-ignore
    response.on('error', () => undefined)
    if (url.pathname === '/health') return void response.writeHead(204).end()
    if (url.pathname === '/files')
      return void files(request, url, response).catch((error: unknown) => {
        const code = (error as NodeJS.ErrnoException).code === 'ENOSPC' ? 507 : 500
        if (!response.headersSent) response.writeHead(code, { 'content-type': 'application/json' })
        response.end(JSON.stringify({ code, message: (error as Error).message }))
      })
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const body = Buffer.concat(pieces)
      if (request.headers['content-type'] === 'application/connect+json') {
        stream(method, body, isRoot, response)
        return
      }
      const answer = async (): Promise<Fields> => {
        const fields = JSON.parse(body.toString()) as Fields
        return service === 'process.Process' ? process_(method, fields) : filesystem(method, fields)
      }
      answer().then(
        (reply) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(reply)),
        (error: unknown) => {
          const { code = 'internal', message } = error as Partial<ConnectFault>
          const status = { not_found: 404, invalid_argument: 400, already_exists: 409, failed_precondition: 400 }[code]
          response.writeHead(status ?? 500, { 'content-type': 'application/json' }).end(JSON.stringify({ code, message })) // prettier-ignore
        },
      )
    })
  })
  .listen(settings.port, settings.host, function (this: http.Server) {
    const address = this.address()
    console.log(`envd listens on ${typeof address === 'object' ? (address?.port ?? 0) : 0}`)
  })
