/** A sandbox that must not be handed out is not, and nothing of it is left; and what a person or a program gets to see shows no secret. */
import { generateKeyPairSync } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { inspect } from 'node:util'
import { afterEach, expect, test, vi } from 'vitest'
import { startReachableGateway } from '../../../provider/conformance/reachable-gateway.ts'
import { createSandboxProvider, type RemoteGateway } from '../../../provider/index.ts'
import { openHostAddress } from '../elsewhere/guest.ts'
import { describeNeeding } from '../needs.ts'
import { startMachine } from './machine.ts'
import { faultOf, mustHide, openSubject } from './subject.ts'

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 })
const closers: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

function runtimeRoot(): string {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'spv-'))
  closers.push(() => fs.rmSync(folder, { recursive: true }))
  return folder
}

function nowhere(): RemoteGateway {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return {
    url: 'http://198.19.0.9:3128',
    issuer: 'https://host.example',
    issuerKey: JSON.stringify({ ...privateKey.export({ format: 'jwk' }), kid: 'k', alg: 'ES256' }),
  }
}

test('what can not be made ready is deleted, and when that fails too, both faults are kept', async () => {
  const { azure, backend, close } = await openSubject()
  closers.push(close)
  const provider = createSandboxProvider({ backend, gateway: nowhere(), runtimeRoot: runtimeRoot() })
  // What stands for the worker knows no probe.
  const first = await faultOf(provider.create())
  expect(first).toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' })
  expect(azure.groups.size).toBe(0)
  // Of the step that started it, and of the one before it that made the group.
  azure.troubles.set('DELETE', [
    { status: 403, code: 'AuthorizationFailed', message: 'no' },
    { status: 403, code: 'AuthorizationFailed', message: 'no' },
  ])
  const second = await faultOf(provider.create())
  expect(second).toMatchObject({ code: 'SALLYPORT_SANDBOX_CREATE_FAILED' })
  const { errors } = (second as { cause?: unknown }).cause as AggregateError
  expect(errors[0]).toMatchObject({ code: 'SALLYPORT_SANDBOX_CONNECTION_LOST' })
  expect(errors[1]).toMatchObject({ fault: 'credentials_refused' })
  expect((await provider.list()).length).toBe(1)
  expect(await provider.reap({ olderThanMs: 0 })).toHaveLength(1)
  expect(azure.groups.size).toBe(0)
  await provider[Symbol.asyncDispose]()
})

describeNeeding(['root', 'bubblewrap', 'nftables', 'namespaces'], 'a container with the image’s own entry', () => {
  test('that reaches more than the gateway is refused and deleted; one that does not is handed out, and shows no secret', async () => {
    const host = await openHostAddress(4)
    closers.push(host.close)
    const gateway = await startReachableGateway(host.address, {
      config: { log: { level: 'silent' } },
      machineSets: { sets: { npm: [], apt: [] }, notes: [] },
    })
    closers.push(gateway.close)
    const port = Number(new URL(gateway.remote.url).port)
    const make = async (reached: boolean) => {
      // Port 2024 of the machine's own address is the worker's.
      const subject = await openSubject(
        { machine: startMachine },
        {
          workerPort: 2024,
          workerTimeoutMs: 60_000,
          directTargets: [{ host: reached ? host.address : '192.0.2.1', port: reached ? port : 443 }],
        },
      )
      closers.push(subject.close)
      const provider = createSandboxProvider({
        backend: subject.backend,
        gateway: gateway.remote,
        runtimeRoot: runtimeRoot(),
      })
      closers.push(async () => provider[Symbol.asyncDispose]())
      return { subject, provider }
    }
    const open = await make(true)
    const error = await faultOf(open.provider.create())
    expect(error).toMatchObject({ code: 'SALLYPORT_SANDBOX_EGRESS_UNENFORCED' })
    expect(error.message).toContain('connected')
    expect(open.subject.azure.groups.size).toBe(0)

    const shut = await make(false)
    const sandbox = await shut.provider.create({ env: { CALLERS: 'visible' }, timeoutMs: 600_000 })
    const { stdout } = await sandbox.exec(
      'id -u; echo $CALLERS; grep -E "^(CapBnd|NoNewPrivs|Seccomp):" /proc/self/status | tr -d "\\t "; cat /proc/1/cmdline /proc/*/environ 2>/dev/null | tr "\\0" " "',
    )
    expect(stdout.split('\n').slice(0, 5)).toEqual([
      '1000',
      'visible',
      'CapBnd:0000000000000000',
      'NoNewPrivs:1',
      'Seccomp:2',
    ])
    mustHide(stdout)
    mustHide(JSON.stringify(shut.subject.azure.log))
    mustHide(inspect(await shut.provider.list(), { depth: 9 }))
    expect((await shut.provider.list())[0]?.platform).toMatchObject({ 'created-from-standby-pool': 'true' })
    // What is left in the file is used up.
    const used = /"token":"([\w-]+)"/.exec(JSON.stringify(shut.subject.azure.log).replaceAll('\\', ''))?.[1] ?? ''
    expect(used).toHaveLength(43)
    const knock = await sandbox.exec('/opt/sallyport/node', [
      '-e',
      'fetch("http://127.0.0.1:2024/processes/x", { headers: { authorization: "Bearer " + process.argv[1] } }).then(({ status }) => console.log(status))',
      used,
    ])
    expect(knock.stdout).toBe('401\n')
    await sandbox.destroy()
    expect(shut.subject.azure.groups.size).toBe(0)
  })
})
