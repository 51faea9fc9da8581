/** A backend whose sandboxes are a small HTTP server on the control socket: for the life of a sandbox, without one. It can fail wherever it is told to. */
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'
import type { Backend, StartRequest, StartedSandbox } from '../../provider/backend.ts'
import type { SandboxCapabilities } from '../../provider/sandbox.ts'
import type { WorkerProbeReport } from '../../provider/worker-client.ts'

/** Where it may fail, or what it may claim. */
export interface FakeTroubles {
  check?: Error
  /** After the platform has made half of it. */
  start?: Error
  /** Waits in `start` until its signal aborts. */
  hangs?: boolean
  /** The worker's health answers so. */
  health?: 'refused' | 'never'
  configure?: boolean
  probe?: { tcp?: string; udp?: string; gateway?: object }
  /** What the worker says at its start of what it was asked to look for. */
  probed?: WorkerProbeReport
  stop?: Error
}

export interface FakeBackend extends Backend {
  readonly troubles: FakeTroubles
  /** What it did, in order. */
  readonly log: string[]
  /** What the platform still holds. */
  readonly platform: Set<string>
  readonly requests: StartRequest[]
  /** Bodies of what the worker was asked, by route. */
  readonly asked: { readonly route: string; readonly body: string }[]
  /** The sandbox ends by itself. */
  readonly end: (id: string) => void
}

const CAPABILITIES: SandboxCapabilities = {
  enforcement: 'kernel',
  streaming: true,
  spawn: true,
  runtimeEgressChange: true,
  memoryLimit: 'command',
  processLimit: false,
  timeToLive: true,
  attach: true,
  leftOpen: [],
}

export function fakeBackend(
  runtimeRoot: string,
  over: Partial<SandboxCapabilities> = {},
  gateway?: { host: string; port: number },
): FakeBackend {
  const troubles: FakeTroubles = {}
  const log: string[] = []
  const platform = new Set<string>()
  const requests: StartRequest[] = []
  const asked: { route: string; body: string }[] = []
  const running = new Map<string, { readonly started: StartedSandbox; readonly end: () => void }>()

  const begin = async (id: string): Promise<StartedSandbox> => {
    const socketPath = path.join(runtimeRoot, id, 'control', 'worker.sock')
    const server = fakeWorker(troubles, asked)
    await new Promise<void>((resolve) => server.listen(socketPath, resolve))
    platform.add(id)
    let end = (): void => undefined
    const ended = new Promise<void>((resolve) => (end = resolve))
    let stopping: Promise<void> | undefined
    const started: StartedSandbox = {
      rootDir: '/work',
      ...(gateway !== undefined && { gateway }),
      connect: () =>
        new Promise((resolve, reject) => {
          const socket = net.connect({ path: socketPath, allowHalfOpen: true })
          socket.once('connect', () => resolve(socket)).once('error', reject)
        }),
      ended,
      answered: () => {
        log.push(`answered after ${asked.length} requests`)
        return Promise.resolve()
      },
      stop: () =>
        (stopping ??= (async () => {
          log.push(
            `stop ${fs.existsSync(path.join(runtimeRoot, id, 'egress', 'gateway.sock')) ? 'before' : 'after'} its way out was closed`,
          )
          if (troubles.stop !== undefined) throw troubles.stop
          server.closeAllConnections()
          await new Promise((resolve) => server.close(resolve))
          platform.delete(id)
          running.delete(id)
          end()
        })()),
    }
    running.set(id, { started, end })
    return started
  }

  return {
    name: 'fake',
    environment: 'basic',
    capabilities: { ...CAPABILITIES, ...over },
    troubles,
    log,
    platform,
    requests,
    asked,
    end: (id) => void running.get(id)?.started.stop(),
    check: () => (troubles.check === undefined ? Promise.resolve() : Promise.reject(troubles.check)),
    start: async (request) => {
      log.push('start')
      requests.push(request)
      platform.add(`half of ${request.id}`)
      request.undo('half', () => {
        log.push('undo half')
        platform.delete(`half of ${request.id}`)
        return Promise.resolve()
      })
      if (troubles.start !== undefined) throw troubles.start
      if (troubles.hangs === true) {
        await new Promise<void>((_resolve, reject) => {
          request.signal?.addEventListener('abort', () => reject(request.signal?.reason as Error))
          if (request.signal?.aborted === true) reject(request.signal.reason as Error)
        })
      }
      const started = await begin(request.id)
      platform.delete(`half of ${request.id}`)
      return { ...started, probed: troubles.probed }
    },
    list: () =>
      Promise.resolve(
        requests
          .filter(({ id }) => platform.has(id))
          .map(({ id, labels }) => ({ id, createdAtMs: Date.parse(labels['created-at'] ?? ''), labels })),
      ),
    attach: (id) => Promise.resolve(running.get(id)?.started),
  }
}

/** Status and body by route; undefined: no answer, or one that does not end. */
type Answer = readonly [status: number, body: string] | undefined

function fakeWorker(troubles: FakeTroubles, asked: { route: string; body: string }[]): http.Server {
  return http.createServer((request, response) => {
    const pieces: Buffer[] = []
    request.on('data', (piece: Buffer) => pieces.push(piece))
    request.on('end', () => {
      const route = `${request.method ?? ''} ${(request.url ?? '').split('?')[0] ?? ''}`
      const body = Buffer.concat(pieces).toString()
      asked.push({ route, body })
      const answer = answerTo(troubles, route, body)
      if (answer !== undefined) response.writeHead(answer[0], { 'content-type': 'application/json' }).end(answer[1])
      else if (route === 'POST /execute') response.writeHead(200).flushHeaders()
    })
  })
}

function answerTo(troubles: FakeTroubles, route: string, body: string): Answer {
  const refused: Answer = [500, JSON.stringify({ error: { code: 'internal', message: 'no' } })]
  switch (route) {
    case 'GET /healthz': {
      const health = { status: 'ok', protocol: 1, pid: 1, node: 'v1', rootDir: '/work', running: 0, uptimeMs: 1 }
      if (troubles.health === 'never') return undefined
      return troubles.health === 'refused' ? refused : [200, JSON.stringify(health)]
    }
    case 'POST /configure':
      return troubles.configure === false ? refused : [200, '{}']
    case 'POST /probe': {
      const granted = { tcp: 'ENETUNREACH', udp: 'ENETUNREACH', gateway: { status: 403, reason: 'host_not_allowed' } }
      const { tcp, udp, gateway } = { ...granted, ...troubles.probe }
      const probe = JSON.parse(body) as { tcp: unknown[]; udp: unknown[] }
      return [200, JSON.stringify({ tcp: probe.tcp.map(() => tcp), udp: probe.udp.map(() => udp), gateway })]
    }
    case 'POST /execute':
      // Its end comes with the connection's.
      if (body.includes('hang')) return undefined
      return [200, `${JSON.stringify({ type: 'result', exitCode: 7, timedOut: false, durationMs: 1 })}\n`]
    default:
      return refused
  }
}
