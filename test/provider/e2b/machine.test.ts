/** A machine as a worker: what conformance does not ask, and what an attacker would. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { Sandbox as Machine } from 'e2b'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createE2bApi } from '../../../provider/backends/e2b/e2b-api.ts'
import { resolveE2bOptions } from '../../../provider/backends/e2b/e2b-options.ts'
import { forgetOutput } from '../../../provider/backends/e2b/forget-output.ts'
import { watchMachine } from '../../../provider/backends/e2b/watch-machine.ts'
import type { Sandbox } from '../../../provider/index.ts'
import { type E2bBench, MARKER_KEY, openE2bBench } from './bench.ts'

let bench: E2bBench
let sandbox: Sandbox
beforeAll(async () => {
  bench = await openE2bBench()
  sandbox = await bench
    .provider()
    .create({ env: { OWN: 'value', JAVA_TOOL_OPTIONS: '-Down=1' }, labels: { team: 'a b' } })
}, 60_000)
afterAll(async () => {
  await bench.close()
  expect(bench.server.faults).toEqual([])
}, 60_000)

const connection = () => ({ apiKey: MARKER_KEY, apiUrl: bench.server.apiUrl, sandboxUrl: bench.server.sandboxUrl, debug: false }) // prettier-ignore
const onlyMachine = (id: string) => bench.server.running().find(({ metadata }) => metadata['sallyport-sandbox'] === id)

test('everything is denied but the gateway, and nothing inside can be reached from outside', () => {
  expect(onlyMachine(sandbox.id)?.network).toEqual({ denyOut: ['0.0.0.0/0'], allowOut: ['127.0.0.1/32'], allowPublicTraffic: false }) // prettier-ignore
})

test('each command has a token in its environment, and what the caller set; the machine itself has none', async () => {
  const { stdout } = await sandbox.exec('echo "$https_proxy $OWN $JAVA_TOOL_OPTIONS $no_proxy"')
  expect(stdout).toMatch(/^http:\/\/sandbox:eyJ[\w.-]+@127\.0\.0\.1:\d+ value .*-Down=1/)
  expect(stdout).not.toContain(':3128')
  const handed = bench.server.calls.map(({ body }) => JSON.stringify(body ?? null)).join('\n')
  expect(handed).not.toMatch(/eyJ|envVars/)
  expect((await sandbox.exec('echo "$http_proxy"', undefined, { env: { http_proxy: 'http://mine' } })).stdout).toBe(
    'http://mine\n',
  )
})

test('the key of the team is in no machine, list, record or error', async () => {
  const { stdout } = await sandbox.exec('env; cat ~/.sallyport/* "$HOME"/workspace/* 2>/dev/null; true')
  expect(stdout).not.toContain(MARKER_KEY)
  expect(JSON.stringify(await bench.provider().list())).not.toContain(MARKER_KEY)
  const folder = path.join(bench.runtimeRoot, sandbox.id)
  const kept = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
  for (const entry of kept) expect(readFileSync(path.join(entry.parentPath, entry.name), 'utf8')).not.toMatch(new RegExp(`${MARKER_KEY}|eyJ`)) // prettier-ignore
  expect(kept.length).toBeGreaterThan(0)
  expect(JSON.stringify(onlyMachine(sandbox.id)?.metadata)).not.toMatch(new RegExp(`${MARKER_KEY}|eyJ`))
})

test('a command can say how it ended in the supervisor’s place only for itself', async () => {
  const forged = await sandbox.exec(
    `mark=$(tr '\\0' '\\n' < /proc/$PPID/cmdline | grep -xE '[0-9a-f]{24}'); printf '\\036%s:end 0 0 0\\036' "$mark"; printf '\\036%s:end 0 0 0\\036' "$mark" >&2; exit 7`,
  )
  expect(forged).toMatchObject({ exitCode: 0, stdout: '' })
  expect((await sandbox.exec('exit 7')).exitCode).toBe(7)
})

test('something that holds the pipes open keeps no command from its end', async () => {
  const before = Date.now()
  expect(await sandbox.exec('sleep 60 & echo done')).toMatchObject({ exitCode: 0, stdout: 'done\n' })
  expect(Date.now() - before).toBeLessThan(30_000)
})

test('bytes that are no text come as U+FFFD from a command, and as they are from a file', async () => {
  expect((await sandbox.exec('printf "a\\377b"')).stdout).toBe('a\ufffdb')
  await sandbox.exec('printf "a\\377b" > bytes')
  expect([...(await sandbox.readFile('bytes'))]).toEqual([97, 255, 98])
})

test('arguments that the platform could not take are refused, with what to do', async () => {
  await expect(sandbox.exec('echo', ['x'.repeat(200_000)])).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_EXEC_FAILED', message: expect.stringContaining('write them to a file') as string }) // prettier-ignore
  await expect(sandbox.exec('echo', ['a\0b'])).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_EXEC_FAILED' })
})

test('a stream that fails writes nothing, and its own error comes back', async () => {
  const fault = new Error('the source broke')
  await sandbox.writeFile('kept', 'before')
  const broken = (async function* () {
    yield await Promise.resolve(Buffer.from('half'))
    throw fault
  })()
  await expect(sandbox.writeFile('kept', broken)).rejects.toBe(fault)
  expect(Buffer.from(await sandbox.readFile('kept')).toString()).toBe('before')
  expect((await sandbox.exec('ls ~/.sallyport')).stdout.trim()).toBe('environment.json')
})

test('a background process is found by a provider that did not start it', async () => {
  const process = await sandbox.spawn('while read -r line; do echo "got $line"; done; exit 4')
  const other = await bench.provider().attach(sandbox.id)
  const again = await other.attachProcess(process.id)
  await again.write('one\n')
  await again.closeStdin()
  expect(await again.wait()).toMatchObject({ exitCode: 4, stdout: 'got one\n' })
  await expect(other.attachProcess('1-2-000000000000000000000000')).rejects.toMatchObject({ code: 'SALLYPORT_SANDBOX_NOT_FOUND' }) // prettier-ignore
}, 30_000)

test('the SDK adds up no output of its own', async () => {
  const machine = await Machine.connect(onlyMachine(sandbox.id)?.id ?? '', connection())
  const handle = await machine.commands.run('sleep 0.5; head -c 100000 /dev/zero | tr "\\0" x', { background: true })
  forgetOutput(handle)
  await handle.wait()
  expect(handle.stdout).toBe('')
})

test('a machine is kept for as long as it is watched, and its end is noticed', async () => {
  const api = createE2bApi(resolveE2bOptions({ ...connection(), leaseMs: 60_000 }))
  const machine = await api.create({ metadata: { watched: 'yes' }, network: { allowOut: ['127.0.0.1/32'], denyOut: ['0.0.0.0/0'], allowPublicTraffic: false }, timeoutMs: 60_000 }) // prettier-ignore
  const life = () => bench.server.running().find(({ id }) => id === machine.sandboxId)?.endAtMs ?? 0
  const before = life()
  let losses = 0
  const watch = watchMachine({ api, machine, leaseMs: 9_000, onLoss: () => losses++ })
  await expect.poll(life, { timeout: 30_000 }).not.toBe(before)
  await api.end(machine.sandboxId)
  await watch.ended
  expect(losses).toBe(1)
}, 60_000)

test('labels lead back to a machine, and what is destroyed is gone', async () => {
  const provider = bench.provider()
  const made = await provider.create({ labels: { kind: 'short' }, timeoutMs: 3_600_000 })
  const info = (await provider.list()).find(({ id }) => id === made.id)
  expect(info?.labels).toEqual({ kind: 'short' })
  expect((info?.expiresAtMs ?? 0) - Date.now()).toBeGreaterThan(3_000_000)
  // The platform keeps it for a lease at a time.
  expect((onlyMachine(made.id)?.endAtMs ?? 0) - Date.now()).toBeLessThan(700_000)
  await made.destroy()
  expect(onlyMachine(made.id)).toBeUndefined()
  expect(existsSync(path.join(bench.runtimeRoot, made.id))).toBe(false)
}, 60_000)
