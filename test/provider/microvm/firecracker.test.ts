/** Firecracker as it is driven: which requests, in which order, under its jailer; and what becomes of one that does not do as told. */
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import type { Backend } from '../../../provider/backend.ts'
import { createSelfHostedBackend } from '../../../provider/backends/self-hosted.ts'
import { MicrovmError } from '../../../provider/index.ts'
import { startSandbox, type TestSandbox } from '../docker/start.ts'
import { describeNeeding } from '../needs.ts'
import { traces } from './traces.ts'
import { makeStubs, NO_SPECIFICATION, type Stubs } from './stubs.ts'

if (NO_SPECIFICATION !== undefined) console.log(NO_SPECIFICATION)

/** Starts of several programs, on a machine that may be busy. */
vi.setConfig({ testTimeout: 120_000 })

describeNeeding(['root', 'bubblewrap'], 'a machine of Firecracker', () => {
  let stubs: Stubs
  let root: string
  const made: TestSandbox[] = []
  beforeAll(() => {
    stubs = makeStubs()
    root = path.join(stubs.folder, 'r')
    fs.mkdirSync(root, { mode: 0o700 })
  })
  afterEach(async () => {
    stubs.misbehave(undefined)
    for (const { started, folder } of made.splice(0)) {
      await started.stop()
      fs.rmSync(folder, { recursive: true })
    }
    fs.truncateSync(path.join(stubs.folder, 'log'))
  })
  afterAll(() => stubs.remove())

  const backend = (more: object = {}): Backend => {
    const { tier: _tier, service: _service, ...options } = stubs.config
    return createSelfHostedBackend({ ...options, ...more, runtimeRoot: root })
  }
  const start = async (more: object = {}, request: object = {}): Promise<TestSandbox> => {
    const sandbox = await startSandbox(backend(more), root, { id: newId(), ...request })
    made.push(sandbox)
    return sandbox
  }
  /** Its fault, once everything is gone again. */
  const refused = async (more: object = {}): Promise<MicrovmError> => {
    const id = newId()
    const error: unknown = await startSandbox(backend(more), root, { id }).catch((thrown: unknown) => thrown)
    if (!(error instanceof MicrovmError)) throw error
    expect(traces(id)).toEqual([])
    expect(fs.existsSync(stubs.jail(id))).toBe(false)
    fs.rmSync(path.join(root, id), { recursive: true })
    return error
  }

  test('is configured and booted by requests that its specification knows, with no network and no metadata', async () => {
    const { sh } = await start()
    expect(await sh('echo $((6 * 7))')).toBe('42\n')
    const requests = stubs.log().filter(({ method }) => method !== undefined)
    expect(requests.flatMap(({ faults }) => faults)).toEqual([])
    expect(requests.map(({ method, path: asked }) => `${method ?? ''} ${asked ?? ''}`)).toEqual([
      'PUT /machine-config',
      'PUT /boot-source',
      'PUT /drives/rootfs',
      'PUT /vsock',
      'PUT /entropy',
      'PUT /serial',
      'PUT /actions',
    ])
    expect(requests.find(({ path: asked }) => asked === '/drives/rootfs')?.body).toMatchObject({ is_read_only: true, path_on_host: 'rootfs' }) // prettier-ignore
    expect(requests[0]?.body).toEqual({ vcpu_count: 1, mem_size_mib: 512, smt: false, track_dirty_pages: false })
  })

  test('leaves nothing: no process, jail, control group, user', async () => {
    const { id, started, folder } = await start()
    const record = JSON.parse(fs.readFileSync(path.join(folder, 'machine.json'), 'utf8')) as {
      processes: { pid: number }[]
    }
    expect(record.processes.length).toBe(1)
    expect(traces(id)).not.toEqual([])
    await started.stop()
    await started.ended
    // One that was killed may still wait for this process to collect it.
    await expect.poll(() => record.processes.filter(({ pid }) => fs.existsSync(`/proc/${pid}`)), { timeout: 20_000 }).toEqual([]) // prettier-ignore
    expect(traces(id)).toEqual([])
    expect(fs.existsSync(stubs.jail(id))).toBe(false)
  })

  test('has a user of its own, and its bearer is in no command line and no file of its folder', async () => {
    const [one, other] = [await start(), await start()]
    const records = [one, other].map(({ folder }) => JSON.parse(fs.readFileSync(path.join(folder, 'machine.json'), 'utf8')) as { uid: number; folder: string }) // prettier-ignore
    expect(records[0]?.uid).not.toBe(records[1]?.uid)
    for (const [index, { token }] of [one, other].entries()) {
      const folder = records[index]?.folder ?? ''
      for (const name of fs.readdirSync(folder)) {
        const file = path.join(folder, name)
        if (fs.statSync(file).isFile()) expect(fs.readFileSync(file, 'latin1')).not.toContain(token)
      }
      const lines = fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map((pid) => readText(`/proc/${pid}/cmdline`)) // prettier-ignore
      expect(lines.some((line) => line.includes(token))).toBe(false)
      expect(JSON.stringify(stubs.log())).not.toContain(token)
    }
  })

  test('works without its jailer, when that is asked for by name', async () => {
    const { sh, folder } = await start({ unsafeNoJailer: true, jailerBinary: '/nowhere' })
    expect(await sh('echo here')).toBe('here\n')
    expect(fs.existsSync(path.join(folder, 'vm/v.sock'))).toBe(true)
  })

  test('whose guest ends takes everything with it', async () => {
    const { sh, started, id } = await start()
    await sh('kill -9 -1').catch(() => undefined)
    await started.ended
    await started.stop()
    expect(traces(id)).toEqual([])
  })

  describe('that does not do as told is named, and leaves nothing', () => {
    test.each<[string, string, string, string, object?]>([
      ['it refuses a request', 'refuse /vsock', 'api_refused', 'it is raining'],
      ['its reply is not JSON', 'not-json /boot-source', 'api_refused', 'bad gateway'],
      ['its reply has no end', 'long /boot-source', 'api_lost', 'too long'],
      ['it sends half a reply', 'half /machine-config', 'api_lost', '/machine-config'],
      ['it ends as it starts', 'exit', 'machine_ended', 'permission denied'],
      ['its guest never calls', 'silent', 'guest_silent', 'a worker', { startTimeoutMs: 1_500 }],
      ['its guest is of another version', 'other-version', 'image_unusable', 'build it again'],
      ['its guest dies of its orders', 'crash', 'machine_ended', 'before its worker answered'],
    ])('%s', async (_what, how, fault, message, more = {}) => {
      stubs.misbehave(how)
      const error = await refused(more)
      expect(error).toMatchObject({ fault })
      expect(error.message).toContain(message)
      expect(error.message).not.toMatch(/[\n\r]/)
      expect(error.message.length).toBeLessThan(600)
    })

    test('it hangs, and the caller gives up', async () => {
      stubs.misbehave('hang /machine-config')
      const controller = new AbortController()
      const id = newId()
      const starting = startSandbox(backend(), root, { id, signal: controller.signal })
      starting.catch(() => undefined)
      await expect.poll(() => fs.existsSync(path.join(stubs.jail(id), 'root/api.sock')), { timeout: 30_000 }).toBe(true)
      controller.abort(new Error('enough'))
      await expect(starting).rejects.toThrow()
      expect(traces(id)).toEqual([])
      expect(fs.existsSync(stubs.jail(id))).toBe(false)
      fs.rmSync(path.join(root, id), { recursive: true })
    })

    test.each([
      ['nobody listens behind its vsock device', 'deaf', 'nobody listens'],
      ['its vsock device says something else', 'garbage', 'something else than `OK`'],
    ])('%s', async (_what, how, message) => {
      stubs.misbehave(how)
      const { client } = await start()
      await expect(client.health()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST', message: expect.stringContaining(message) as string }) // prettier-ignore
    })
  })

  describe('that can not be made is said before anything is', () => {
    test.each<[string, object, string, string]>([
      ['without KVM', { kvmDevice: '/dev/no-kvm' }, 'kvm_missing', '/dev/no-kvm'],
      ['without Firecracker', { firecrackerBinary: '/nowhere/firecracker' }, 'binary_missing', '1.16'],
      ['without a jailer', { jailerBinary: '/nowhere/jailer' }, 'jailer_missing', 'unsafeNoJailer'],
      ['without a kernel', { kernelImage: '/nowhere/vmlinux' }, 'image_missing', 'deploy/microvm'],
      ['without a root file system', { rootfsImage: '/nowhere/rootfs' }, 'image_missing', 'deploy/microvm'],
      ['without its snapshot', { snapshot: '/nowhere' }, 'snapshot_unusable', 'sallyport microvm snapshot'],
    ])('%s', async (_what, more, fault, message) => {
      await expect(backend(more).check()).rejects.toMatchObject({ fault, message: expect.stringContaining(message) as string }) // prettier-ignore
    })

    test('with a Firecracker that is too old', async () => {
      stubs.misbehave('old')
      await expect(backend().check()).rejects.toMatchObject({ fault: 'binary_missing', message: expect.stringContaining('too old') as string }) // prettier-ignore
    })
  })

  test('whose place is taken is refused, and what is there stays', async () => {
    const id = newId()
    const jail = path.join(stubs.jail(id), 'root')
    fs.mkdirSync(jail, { recursive: true })
    fs.writeFileSync(path.join(jail, 'somebody’s'), '')
    await expect(startSandbox(backend(), root, { id })).rejects.toMatchObject({ fault: 'name_taken' })
    expect(fs.readdirSync(jail)).toEqual(['somebody’s'])
    fs.rmSync(path.dirname(jail), { recursive: true })
    fs.rmSync(path.join(root, id), { recursive: true })
  })

  test('is refused when all users are taken, and made again when one is free', async () => {
    const one = { uids: { first: 3_900_000, count: 1 } }
    const first = await start(one)
    expect(await refused(one)).toMatchObject({ fault: 'quota_exhausted' })
    await first.started.stop()
    await start(one)
  })
})

describe('options', () => {
  const images = { runtimeRoot: '/r', kernelImage: '/k', rootfsImage: '/f' }
  test.each<[string, object]>([
    ['no kernel', { kernelImage: undefined }],
    ['a relative path', { rootfsImage: 'rootfs' }],
    ['another engine', { engine: 'kvmtool' }],
    ['another network', { network: 'bridge' }],
    ['three processors', { cpus: 3 }],
    ['a pool without end', { pool: { size: 1_000 } }],
    ['the users of people', { uids: { first: 0, count: 10 } }],
    ['a relative program', { firecrackerBinary: './firecracker' }],
    ['no room on the disk', { rateLimits: { diskBytes: 0 } }],
    ['a snapshot for QEMU', { engine: 'qemu', snapshot: '/s' }],
  ])('with %s are a mistake', (_what, options) => {
    expect(() => createSelfHostedBackend({ ...images, ...options })).toThrow(TypeError)
  })

  test('with less memory than a guest needs are refused', () => {
    expect(() => createSelfHostedBackend({ ...images, memoryLimitMb: 128 })).toThrow('192 or more')
  })
})

let count = 0
function newId(): string {
  return `sbx_${(process.pid * 1_000 + count++).toString(36).padStart(16, 'a').replaceAll(/[01]/g, 'z')}`
}

function readText(file: string): string {
  try {
    return fs.readFileSync(file, 'latin1')
  } catch {
    return ''
  }
}
