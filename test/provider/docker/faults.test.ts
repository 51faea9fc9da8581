/** What an engine's refusals are called, and what people are told to do. */
import http from 'node:http'
import { mkdtempSync, rmSync } from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { resolveContainerOptions } from '../../../provider/backends/container-options.ts'
import { createDockerBackend } from '../../../provider/backends/docker.ts'
import { openEngine } from '../../../provider/backends/docker-engine.ts'
import { DockerError, dockerError } from '../../../provider/backends/docker-error.ts'
import { createSandboxProvider } from '../../../provider/index.ts'
import { SandboxError } from '../../../provider/sandbox-error.ts'

const CONTEXT = {
  action: 'start the container',
  engine: '/run/e.sock',
  image: 'an/image:1',
  name: 'sallyport-x',
  runtime: 'runsc',
}
const replied = (statusCode: number, message: string): Error =>
  Object.assign(new Error(`(HTTP code ${statusCode}) ${message}`), { statusCode, json: { message } })
const failed = (code: string): Error => Object.assign(new Error(`connect ${code}`), { code })

describe('a refusal', () => {
  test.each<[string, unknown, string, string, string]>([
    [
      'of the system, for want of permission',
      failed('EACCES'),
      'engine_forbidden',
      'SALLYPORT_SANDBOX_BACKEND_MISSING',
      'usermod -aG docker',
    ],
    [
      'without an engine',
      failed('ECONNREFUSED'),
      'engine_unreachable',
      'SALLYPORT_SANDBOX_BACKEND_MISSING',
      'systemctl start docker',
    ],
    ['without a socket', failed('ENOENT'), 'engine_unreachable', 'SALLYPORT_SANDBOX_BACKEND_MISSING', '/run/e.sock'],
    [
      'for want of the image',
      replied(404, 'No such image: an/image:1'),
      'image_missing',
      'SALLYPORT_SANDBOX_IMAGE_MISSING',
      'docker pull an/image:1',
    ],
    [
      'for the name',
      replied(409, 'Conflict. The container name "/sallyport-x" is already in use by container "ab"'),
      'name_taken',
      'SALLYPORT_SANDBOX_BACKEND_FAILED',
      'docker rm -f sallyport-x',
    ],
    [
      'for want of room',
      replied(500, 'mkdir /var/lib/docker/x: no space left on device'),
      'disk_full',
      'SALLYPORT_SANDBOX_BACKEND_FAILED',
      'docker system prune',
    ],
    [
      'of the runtime, in old words',
      replied(400, 'Unknown runtime specified runsc'),
      'runtime_missing',
      'SALLYPORT_SANDBOX_BACKEND_MISSING',
      'daemon.json',
    ],
    [
      'of the runtime, in new words',
      replied(400, 'unknown or invalid runtime name: runsc'),
      'runtime_missing',
      'SALLYPORT_SANDBOX_BACKEND_MISSING',
      'daemon.json',
    ],
    [
      'of gVisor, for the kernel',
      replied(500, 'cannot run with network enabled in root network namespace'),
      'runtime_unusable',
      'SALLYPORT_SANDBOX_BACKEND_MISSING',
      '--network=none',
    ],
    [
      'for the processor',
      replied(400, 'exec /node: exec format error'),
      'image_unusable',
      'SALLYPORT_SANDBOX_IMAGE_MISSING',
      '--platform',
    ],
    [
      'of any other kind',
      replied(500, 'it is raining'),
      'refused',
      'SALLYPORT_SANDBOX_BACKEND_FAILED',
      'it is raining',
    ],
  ])('%s has a name and says what to do', (_what, error, fault, code, advice) => {
    const named = dockerError(error, CONTEXT)
    expect(named).toBeInstanceOf(DockerError)
    expect(named).toMatchObject({ fault, code, cause: error })
    expect(named.message).toContain(advice)
    expect(named.message).not.toMatch(/[\n\r]/)
  })

  test('that is long or has lines is one bounded line', () => {
    const { message } = dockerError(replied(500, `first\n\u001b[31m${'x'.repeat(10_000)}`), CONTEXT)
    expect(message.length).toBeLessThan(700)
    expect(message).not.toMatch(/[\x00-\x1f]/)
  })

  test('that has a name keeps it', () => {
    const named = new SandboxError('SALLYPORT_SANDBOX_DESTROYED', 'gone')
    expect(dockerError(named, CONTEXT)).toBe(named)
  })
})

describe('an engine', () => {
  let folder: string
  let server: http.Server
  const serve = async (replies: Readonly<Record<string, object>>): Promise<string> => {
    server.on('request', (request, response) =>
      response.setHeader('content-type', 'application/json').end(JSON.stringify(replies[request.url ?? ''] ?? {})),
    )
    return serveSilence()
  }
  const serveSilence = async (): Promise<string> => {
    const socketPath = path.join(folder, 's')
    await new Promise<void>((resolve) => server.listen(socketPath, resolve))
    return socketPath
  }
  beforeEach(() => {
    folder = mkdtempSync('/tmp/spf-')
    server = http.createServer()
  })
  afterEach(() => {
    server.closeAllConnections()
    server.close()
    rmSync(folder, { recursive: true })
  })

  test('that is not there is said not to answer, also to whoever lists', async () => {
    const backend = createDockerBackend({ image: 'busybox', engine: { socketPath: path.join(folder, 'none') } })
    await expect(backend.check()).rejects.toMatchObject({ fault: 'engine_unreachable' })
    await expect(backend.list()).rejects.toMatchObject({ fault: 'engine_unreachable' })
  })

  test.each([
    ['is too old', { Version: '19.03.15', ApiVersion: '1.40', Os: 'linux', Arch: 'amd64' }, /19\.03\.15; 20\.10/],
    ['runs Windows', { Version: '28.0.0', ApiVersion: '1.48', Os: 'windows', Arch: 'amd64' }, /runs windows on amd64/],
    [
      'has a processor without a profile',
      { Version: '28.0.0', ApiVersion: '1.48', Os: 'linux', Arch: 's390x' },
      /linux on s390x/,
    ],
  ])('that %s is refused', async (_what, version, message) => {
    const socketPath = await serve({ '/version': version, '/info': {} })
    await expect(createDockerBackend({ image: 'busybox', engine: { socketPath } }).check()).rejects.toMatchObject({
      code: 'SALLYPORT_SANDBOX_BACKEND_MISSING',
      fault: 'engine_too_old',
      message: expect.stringMatching(message) as string,
    })
  })

  test('that never answers is none', async () => {
    const silent = await serveSilence()
    const engine = await openEngine({ socketPath: silent }, 200)
    const refused = { code: 'SALLYPORT_SANDBOX_BACKEND_MISSING', fault: 'engine_unreachable' }
    await expect(engine.facts()).rejects.toMatchObject(refused)
    await expect(engine.image('busybox')).rejects.toMatchObject(refused)
  })

  test('that never answers keeps nobody who gives up', async () => {
    const backend = { tier: 'container', runtime: 'docker', image: 'busybox', engine: { socketPath: await serveSilence() } } as const // prettier-ignore
    const provider = createSandboxProvider({ backend, runtimeRoot: path.join(folder, 'root') })
    const reason = new Error('enough')
    const controller = new AbortController()
    const creating = provider.create({ signal: controller.signal })
    setImmediate(() => controller.abort(reason))
    await expect(creating).rejects.toBe(reason)
    await provider[Symbol.asyncDispose]()
  })

  test('that sends nonsense is no engine', async () => {
    const socketPath = await serve({ '/version': {}, '/info': {} })
    await expect(createDockerBackend({ image: 'busybox', engine: { socketPath } }).check()).rejects.toBeInstanceOf(
      SandboxError,
    )
  })
})

describe('options', () => {
  test.each<[string, object]>([
    ['no image', {}],
    ['an image that is an option', { image: '--privileged' }],
    ['root', { image: 'a', user: '0:0' }],
    ['a user by name', { image: 'a', user: 'root' }],
    ['a network of the host', { image: 'a', network: 'host' }],
    ['no processors', { image: 'a', cpus: 0 }],
    ['a relative path to Node', { image: 'a', nodePath: 'node' }],
  ])('with %s are a mistake', (_what, options) => {
    expect(() => resolveContainerOptions(options as never)).toThrow(TypeError)
  })

  test('without a value have their default', () => {
    expect(resolveContainerOptions({ image: 'a' })).toMatchObject({
      network: 'none',
      memoryLimitMb: 2048,
      maxProcesses: 512,
      cpus: 2,
    })
    expect(() => resolveContainerOptions({ image: 'a', memoryLimitMb: 8 })).toThrow('memoryLimitMb must be 96 or more')
  })
})
