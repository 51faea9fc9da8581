/** Sandboxes of the process backend behind a real `sallyport serve`, which they reach through its control API. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import path from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createSandboxProvider, type SandboxProvider } from '../../../provider/index.ts'
import { runBinary, type Serving, startBinary } from '../../proxy/cli/run-cli.ts'
import { startOrigin } from '../egress/client.ts'
import { describeNeeding } from '../needs.ts'

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 })

describeNeeding(['bubblewrap'], 'a gateway in another process', () => {
  let root: string
  let serving: Serving
  let origin: Awaited<ReturnType<typeof startOrigin>>
  let admin: string
  let provider: SandboxProvider | undefined
  const at = (...names: string[]): string => path.join(root, ...names)

  beforeEach(async () => {
    root = fs.mkdtempSync('/tmp/sp-')
    fs.mkdirSync(at('run'), { mode: 0o700 })
    origin = await startOrigin()
    const config = [
      'state: state',
      'issuers: [{ issuer: own, algorithms: [ES256], stateKeys: true }]',
      'policy: { ceiling: { kind: allow-all } }',
      'network: { allowPrivate: [127.0.0.0/8], hosts: { a.example: 127.0.0.1, b.example: 127.0.0.1 } }',
      `admin: { bind: { folders: [${at('run')}] } }`,
      'listen: { proxy: 127.0.0.1:0, admin: 127.0.0.1:0 }',
    ]
    fs.writeFileSync(at('sallyport.yaml'), `${config.join('\n')}\n`)
    const named = ['--config', at('sallyport.yaml')]
    await runBinary(['keys', 'generate', ...named])
    const minted = await runBinary(['token', 'mint', '--admin', '--scope', 'token', '--name', 'host', ...named])
    fs.writeFileSync(at('token'), minted.stdout, { mode: 0o600 })
    serving = startBinary(['serve', ...named], { cwd: root })
    admin = (await serving.until('stdout', /admin {3}(http:\/\/\S+)/))[1] ?? ''
  })
  afterEach(async () => {
    await provider?.[Symbol.asyncDispose]().then(undefined, () => undefined)
    provider = undefined
    serving.kill('SIGKILL')
    await serving.ended
    await origin.close()
    fs.rmSync(root, { recursive: true, force: true })
  })

  const entry = (host: string): string => `${host}:${origin.port}`
  const connects = (): SandboxProvider =>
    (provider ??= createSandboxProvider({
      backend: { tier: 'process' },
      runtimeRoot: at('run'),
      gateway: { admin, tokenFile: at('token'), leaseSeconds: 2 },
      defaultEgress: { kind: 'static', allowedHosts: [entry('a.example')] },
    }))
  const listeners = async (): Promise<readonly object[]> => {
    const headers = { authorization: `Bearer ${fs.readFileSync(at('token'), 'utf8').trim()}` }
    return ((await (await fetch(`${admin}/v1/listeners`, { headers })).json()) as { listeners: object[] }).listeners
  }
  const status = async (sandbox: Awaited<ReturnType<SandboxProvider['create']>>, host: string): Promise<string> => {
    const script = `require('node:http').get({ agent: false, host: '127.0.0.1', port: 3128, path: 'http://${entry(host)}/' }, (answer) => console.log(answer.statusCode, answer.resume().headers['x-deny-reason'] ?? ''))`
    return (await sandbox.exec('node', ['-e', script], { timeout: 20_000 })).stdout.trim()
  }

  test('lets out what the policy says, obeys setEgress, keeps the way out while the host lives, and takes it away on destroy', async () => {
    const sandbox = await connects().create()
    expect(await status(sandbox, 'a.example')).toBe('200')
    expect(await status(sandbox, 'b.example')).toBe('403 host_not_allowed')
    await sandbox.setEgress({ kind: 'static', allowedHosts: [entry('b.example')] })
    expect(await status(sandbox, 'a.example')).toBe('403 host_not_allowed')
    expect(await status(sandbox, 'b.example')).toBe('200')
    // More than its lease.
    await new Promise((resolve) => setTimeout(resolve, 3_000))
    expect(await status(sandbox, 'b.example')).toBe('200')
    expect(await listeners()).toMatchObject([{ sandbox: sandbox.id, author: 'host' }])
    await sandbox.destroy()
    expect([await listeners(), fs.readdirSync(at('run'))]).toEqual([[], []])
  })

  test('when the host is killed, its lease lapses: the listener goes, and reap finds the rest', async () => {
    const script = path.join(import.meta.dirname, 'controlled-host-process.ts')
    const host = spawn(process.execPath, [script, at('run'), admin, at('token'), entry('a.example')], {
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    const [line] = (await once(host.stdout, 'data')) as [Buffer]
    const id = /made (\S+)/.exec(line.toString())?.[1] ?? ''
    expect(await listeners()).toMatchObject([{ sandbox: id }])
    host.kill('SIGKILL')
    await once(host, 'exit')
    await expect.poll(listeners, { timeout: 20_000 }).toEqual([])
    const log = (): string =>
      fs
        .readdirSync(at('state', 'audit'))
        .filter((name) => name.endsWith('.jsonl'))
        .map((name) => fs.readFileSync(at('state', 'audit', name), 'utf8'))
        .join('')
    await expect.poll(log, { timeout: 20_000 }).toContain('"action":"listener_lapsed"')
    expect(await connects().reap({ olderThanMs: 600_000 })).toEqual([id])
    expect(fs.readdirSync(at('run'))).toEqual([])
  })

  test('a gateway that is not there fails create, and leaves nothing', async () => {
    serving.kill('SIGKILL')
    await serving.ended
    await expect(connects().create()).rejects.toMatchObject({ code: 'SALLYPORT_GATEWAY_UNREACHABLE' })
    expect(fs.readdirSync(at('run'))).toEqual([])
  })
})
