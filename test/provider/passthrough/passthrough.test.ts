/** Plain processes: what they are told, what they are not given, and that all of them end. */
import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import net from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createPassthroughBackend } from '../../../provider/backends/passthrough.ts'
import { createTestBackend, type TestBackend, type TestSandbox } from '../process/sandboxes.ts'

let backend: TestBackend
beforeEach(async () => (backend = await createTestBackend({}, createPassthroughBackend)))
afterEach(() => backend.close())

/** Stands for a bound listener of the gateway. */
async function gatewayOf(sandbox: TestSandbox): Promise<net.Server> {
  await fs.mkdir(path.join(sandbox.runtimeFolder, 'egress'), { recursive: true })
  const server = net.createServer({ allowHalfOpen: true }, (socket) => socket.on('error', () => undefined).pipe(socket))
  await new Promise<void>((resolve) => server.listen(path.join(sandbox.runtimeFolder, 'egress/gateway.sock'), resolve))
  return server
}

async function processesWith(text: string): Promise<readonly string[]> {
  const { stdout } = await promisify(execFile)('ps', ['-eo', 'args'])
  return stdout.split('\n').filter((line) => line.includes(text))
}

test('says that nothing is enforced', () => {
  expect(backend.backend).toMatchObject({
    name: 'passthrough',
    environment: 'basic',
    capabilities: { enforcement: 'none', memoryLimit: false, processLimit: false },
  })
  expect(backend.backend.capabilities.leftOpen[0]).toContain('everything')
})

test('runs commands in the working folder, with a port of its own that leads to the gateway', async () => {
  const sandbox = await backend.start({ env: { ADDED: 'by the caller' } })
  const { gateway, rootDir } = sandbox.started
  expect(await sandbox.shell('pwd; echo $ADDED')).toBe(`${rootDir}\nby the caller\n`)
  const server = await gatewayOf(sandbox)
  expect(gateway).toMatchObject({ host: '127.0.0.1' })
  expect(gateway!.port).not.toBe(3128)
  const said = await new Promise((resolve, reject) => {
    let text = ''
    net
      .connect({ ...gateway!, allowHalfOpen: true })
      .on('error', reject)
      .on('data', (chunk) => (text += String(chunk)))
      .on('end', () => resolve(text))
      .end('through the relay')
  })
  expect(said).toBe('through the relay')
  await sandbox.close()
  await expect(new Promise((_resolve, reject) => net.connect(gateway!).on('error', reject))).rejects.toMatchObject({
    code: 'ECONNREFUSED',
  })
  await new Promise((resolve) => server.close(resolve))
})

test('two sandboxes have two ports', async () => {
  const [one, other] = [await backend.start(), await backend.start()]
  expect(one.started.gateway?.port).not.toBe(other.started.gateway?.port)
})

test('commands get no secret of the host’s environment, nor the bearer', async () => {
  vi.stubEnv('SECRET_OF_THE_HOST', 'marker-secret')
  const sandbox = await backend.start({ workerToken: `marker-bearer-${'x'.repeat(30)}` })
  vi.unstubAllEnvs()
  expect(await sandbox.shell('env; cat /proc/$PPID/environ /proc/$PPID/cmdline')).not.toContain('marker-')
})

test.each([{ memoryLimitMb: 512 }, { maxProcesses: 5 }])('refuses a limit, %j', async (limit) => {
  await expect(backend.start(limit)).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_SUPPORTED' })
})

test.each([
  ['when it is stopped', (sandbox: TestSandbox) => sandbox.started.stop()],
  ['when its worker is killed', async (sandbox: TestSandbox) => {
    process.kill((await sandbox.client.health()).pid, 'SIGKILL')
    await sandbox.started.ended
    await sandbox.started.stop()
  }],
  ['when another process stops it', async (sandbox: TestSandbox) => (await backend.backend.attach(sandbox.id))?.stop()],
])('everything ends %s', async (_when, stop) => {
  const sandbox = await backend.start()
  const name = `left-over-${sandbox.id}`
  await sandbox.client.spawn({ command: 'sh', args: ['-c', 'sleep 300; :', name] })
  await sandbox.shell(`setsid sh -c 'sleep 300; :' ${name} > /dev/null 2>&1 &`)
  await vi.waitFor(async () => expect((await processesWith(name)).length).toBeGreaterThanOrEqual(1))
  await stop(sandbox)
  await sandbox.started.ended
  await vi.waitFor(async () => expect(await processesWith(name)).toEqual([]))
  expect(await backend.backend.attach(sandbox.id)).toBeUndefined()
}) // prettier-ignore

test('ends by itself after its time', async () => {
  const sandbox = await backend.start({ timeoutMs: 300 })
  await sandbox.started.ended
  await expect(sandbox.client.health()).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' })
})

test('is listed with its labels and can be attached to', async () => {
  const sandbox = await backend.start({ labels: { owner: 'me' }, timeoutMs: 60_000 })
  const [listed] = await backend.backend.list()
  expect(listed).toMatchObject({ id: sandbox.id, labels: { owner: 'me' } })
  expect(listed!.expiresAtMs! - listed!.createdAtMs).toBe(60_000)
  const attached = await backend.backend.attach(sandbox.id)
  expect(attached).toMatchObject({ rootDir: sandbox.started.rootDir, gateway: sandbox.started.gateway })
  ;(await attached!.connect!()).destroy()
  expect(await backend.backend.attach('sbx_unknown')).toBeUndefined()
})
