/**
 * Stands in for Firecracker: a process with its command line and its API on a unix socket, which holds every request and every reply of its own to
 * Firecracker's specification, keeps state like it, and can be told to misbehave. Behind it the guest is a real worker in a real sandbox of this machine.
 *
 * `SALLYPORT_STUB`: JSON of {@link StubSettings}.
 */
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { createProcessBackend } from '../../../provider/backends/process.ts'
import { readSwagger } from '../swagger.ts'

export interface StubSettings {
  /** The specification; undefined: requests are not held to it. */
  readonly contract?: string | undefined
  /** A line of JSON for each request, and for each fault that the specification finds. */
  readonly log: string
  /** Folder for the sandboxes that stand for guests. */
  readonly guests: string
  readonly misbehave?: string | undefined
}

const settings = JSON.parse(process.env['SALLYPORT_STUB'] ?? '{}') as StubSettings
const [misbehaviour = '', target = ''] = (settings.misbehave ?? '').split(' ')
const check = settings.contract === undefined ? () => [] : readSwagger(settings.contract)

const { values } = parseArgs({
  options: { 'api-sock': { type: 'string' }, id: { type: 'string' }, version: { type: 'boolean' } },
})
if (values.version === true) {
  console.log(misbehaviour === 'old' ? 'Firecracker v1.9.0' : 'Firecracker v1.16.1')
  process.exit(0)
}
if (misbehaviour === 'exit') {
  console.error('Error: /dev/kvm: permission denied')
  process.exit(1)
}

// The host keeps the last line of what a machine says.
process.on('uncaughtException', (error) => {
  fs.writeSync(2, `${error.stack?.replaceAll(/\s*\n\s*/g, ' | ') ?? 'unknown'}\n`)
  process.exit(1)
})

let state: 'Not started' | 'Running' | 'Paused' = 'Not started'
const configured = new Map<string, Record<string, unknown>>()
let udsPath = ''
let guest: Guest | undefined

class Refusal extends Error {}
type Body = Record<string, unknown>

function text(body: Body, name: string): string {
  const value = body[name]
  if (typeof value !== 'string') throw new Refusal(`missing field \`${name}\``)
  return value
}

/** As it is in the jail: the working folder. */
function mustExist(file: string): void {
  fs.accessSync(file, fs.constants.R_OK)
}

async function answer(method: string, route: string, body: Body): Promise<Body | undefined> {
  const isBefore = state === 'Not started'
  const [, first = ''] = route.split('/')
  if (method === 'GET' && route === '/') return { id: values.id ?? 'anonymous', state: misbehaviour === 'lies' && !isBefore ? 'Paused' : state, vmm_version: '1.16.1', app_name: 'Firecracker' } // prettier-ignore
  if (method === 'GET' && route === '/version') return { firecracker_version: '1.16.1' }
  if (method === 'PATCH' && route === '/vm') {
    if (isBefore) throw new Refusal('The requested operation is not supported before starting the microVM.')
    state = body['state'] === 'Paused' ? 'Paused' : 'Running'
    if (state === 'Running') await guest?.resume()
    else guest?.pause()
    return undefined
  }
  if (route === '/snapshot/create') {
    if (state !== 'Paused') throw new Refusal('The requested operation is not supported while the microVM is running.')
    fs.writeFileSync(text(body, 'snapshot_path'), JSON.stringify([...configured]))
    fs.writeFileSync(text(body, 'mem_file_path'), Buffer.alloc(4096, 1))
    return undefined
  }
  if (!isBefore) throw new Refusal('The requested operation is not supported after starting the microVM.')
  if (route === '/snapshot/load') {
    if (configured.size > 0)
      throw new Refusal('Loading a microVM snapshot not allowed after configuring boot-specific resources.')
    if (misbehaviour === 'load') {
      setImmediate(() => process.exit(1))
      throw new Refusal('Load snapshot error: invalid snapshot version')
    }
    const memory = body['mem_backend'] as Body
    for (const file of [text(body, 'snapshot_path'), text(memory, 'backend_path'), 'rootfs']) mustExist(file)
    for (const [name, value] of JSON.parse(fs.readFileSync(text(body, 'snapshot_path'), 'utf8')) as [string, Body][])
      configured.set(name, value)
    udsPath = text(body['vsock_override'] as Body, 'uds_path')
    state = 'Paused'
    guest = await startGuest(true)
    return undefined
  }
  switch (first) {
    case 'machine-config':
    case 'entropy':
    case 'serial':
      break
    case 'boot-source':
      mustExist(text(body, 'kernel_image_path'))
      if (body['initrd_path'] !== undefined) mustExist(text(body, 'initrd_path'))
      break
    case 'drives':
      mustExist(text(body, 'path_on_host'))
      if (route !== `/drives/${text(body, 'drive_id')}`) throw new Refusal('the id of the path is not that of the body')
      break
    case 'network-interfaces':
      if (!fs.existsSync(`/sys/class/net/${text(body, 'host_dev_name')}`)) throw new Refusal('Open tap device failed')
      break
    case 'vsock':
      udsPath = text(body, 'uds_path')
      if (fs.existsSync(udsPath)) throw new Refusal('Cannot bind the vsock backend: Address in use')
      break
    case 'actions':
      for (const needed of ['/machine-config', '/boot-source', '/drives/rootfs', '/vsock'])
        if (!configured.has(needed)) throw new Refusal(`Cannot start microvm without ${needed}`)
      state = 'Running'
      guest = await startGuest(false)
      return undefined
    default:
      throw new Refusal(`Invalid request method and/or path: ${method} ${route}`)
  }
  configured.set(route, body)
  return undefined
}

function log(line: object): void {
  fs.appendFileSync(settings.log, `${JSON.stringify(line)}\n`)
}

const server = http.createServer((request, response) => {
  const pieces: Buffer[] = []
  request.on('data', (piece: Buffer) => pieces.push(piece))
  request.on('end', () => {
    const { method = '', url = '' } = request
    const { pathname, searchParams } = new URL(url, 'http://firecracker')
    const bytes = Buffer.concat(pieces)
    const body = bytes.length === 0 ? undefined : (JSON.parse(bytes.toString()) as Body)
    if (pathname === target) {
      if (misbehaviour === 'hang') return
      if (misbehaviour === 'half')
        return void response.writeHead(400, { 'content-length': 500 }).write('{"fault_', () => response.destroy())
      if (misbehaviour === 'not-json') return void response.writeHead(502).end('<html>bad gateway</html>')
      if (misbehaviour === 'long') return void response.writeHead(400).end('x'.repeat(1_000_000))
      if (misbehaviour === 'refuse')
        return void response.writeHead(400).end(JSON.stringify({ fault_message: 'it is\nraining' }))
    }
    void answer(method, pathname, body ?? {})
      .then(
        (reply) => ({ status: method === 'GET' ? 200 : 204, reply }),
        (error: unknown) => ({
          status: 400,
          reply: { fault_message: error instanceof Error ? error.message : 'unknown' },
        }),
      )
      .then(({ status, reply }) => {
        const faults = check({ method, path: pathname, query: searchParams, body, status, reply })
        log({ method, path: pathname, body, status, faults })
        response.writeHead(faults.length > 0 ? 400 : status, { 'content-type': 'application/json' })
        response.end(
          faults.length > 0
            ? JSON.stringify({ fault_message: faults.join('; ') })
            : reply === undefined
              ? ''
              : JSON.stringify(reply),
        )
      })
  })
})
const apiSocket = values['api-sock']
if (apiSocket === undefined) throw new Error('no --api-sock')
if (misbehaviour !== 'no-api') server.listen(apiSocket)
else setInterval(() => undefined, 60_000)

interface Guest {
  readonly pause: () => void
  readonly resume: () => Promise<void>
}

/** The machine's vsock device, and who is behind it. */
async function startGuest(isRestored: boolean): Promise<Guest> {
  let paused = isRestored
  let wasRestored = false
  let running = Promise.withResolvers<undefined>()
  const worker = Promise.withResolvers<() => Promise<net.Socket>>()
  if (!paused) running.resolve(undefined)
  const device = net.createServer({ allowHalfOpen: true }, (host) => {
    host.on('error', () => undefined)
    host.once('data', (line: Buffer) => {
      const port = /^CONNECT (\d+)\n$/.exec(line.toString('latin1'))?.[1]
      void running.promise.then(async () => {
        if (port !== '2024' || misbehaviour === 'deaf') return void host.destroy()
        if (misbehaviour === 'stalled' && wasRestored) return
        if (misbehaviour === 'garbage') return void host.end('NO SUCH THING\n')
        const inner = await (await worker.promise)()
        host.write('OK 1073741824\n')
        join(host, inner)
      })
    })
  })
  await new Promise<void>((resolve) => device.listen(udsPath, resolve))
  if (!isRestored) void call(worker.resolve)
  return {
    pause: () => {
      paused = true
      running = Promise.withResolvers<undefined>()
    },
    resume: () => {
      paused = false
      wasRestored = true
      running.resolve(undefined)
      // A connection of the machine that was kept does not outlive that.
      if (isRestored) void call(worker.resolve)
      return Promise.resolve()
    },
  }
}

/** Boots: asks the host what to be, and becomes it. */
async function call(found: (connect: () => Promise<net.Socket>) => void): Promise<void> {
  if (misbehaviour === 'silent') return
  const host = net.connect(`${udsPath}_1024`)
  host.on('error', () => undefined)
  host.write(`waiting ${misbehaviour === 'other-version' ? 2 : 1}\n`)
  // Not by iterating, which would end the connection.
  let said = ''
  await new Promise<void>((resolve) => {
    host.on('data', (chunk: Buffer) => {
      said += chunk.toString()
      if (/^settings .*\n/m.test(said)) resolve()
    })
  })
  if (misbehaviour === 'crash') process.exit(0)
  const order = (name: string): string => new RegExp(`^${name} (.*)$`, 'm').exec(said)?.[1] ?? ''
  if (!/^[0-9a-f]{128}$/.test(order('seed')) || !(Math.abs(Number(order('time')) - Date.now() / 1000) < 60))
    process.exit(3)
  log({ seed: order('seed') })
  const worker = JSON.parse(order('settings')) as { token: string; env: Record<string, string>; timeToLiveMs?: number }
  // Not the sandbox's own, whose traces are looked for.
  const letters = (values.id ?? '')
    .replace(/^(sbx|vm)-/, '')
    .split('')
    .reverse()
  const id = `sbx_${letters.join('').slice(0, 16).padEnd(16, 'a')}`
  const runtimeFolder = path.join(settings.guests, id)
  fs.mkdirSync(path.join(runtimeFolder, 'egress'), { recursive: true, mode: 0o700 })
  const gateway = net.createServer({ allowHalfOpen: true }, (inner) =>
    join(inner, net.connect({ path: `${udsPath}_3128`, allowHalfOpen: true })),
  )
  await new Promise<void>((resolve) => gateway.listen(path.join(runtimeFolder, 'egress/gateway.sock'), resolve))
  const { mem_size_mib: memory } = configured.get('/machine-config') as { mem_size_mib: number }
  const started = await createProcessBackend({ runtimeRoot: settings.guests }).start({
    id,
    runtimeFolder,
    workerToken: worker.token,
    env: worker.env,
    timeoutMs: worker.timeToLiveMs,
    // Whoever can't make control groups can't hold anybody to it.
    ...(process.getuid?.() === 0 && { memoryLimitMb: memory }),
    maxProcesses: Number(order('processes')) - 24,
    labels: {},
    undo: () => undefined,
  })
  const end = async (): Promise<never> => {
    await started.stop()
    fs.rmSync(runtimeFolder, { recursive: true, force: true })
    process.exit(0)
  }
  void started.ended.then(end)
  found(started.connect!)
  host.end('ready\n')
}

function join(one: net.Socket, other: net.Socket): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.on('error', () => to.destroy())
    from.once('close', () => {
      if (!from.readableEnded) to.destroy()
    })
    from.pipe(to)
  }
}
