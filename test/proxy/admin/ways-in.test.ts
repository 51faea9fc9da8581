/** The other ways into the control API: a client certificate, and the socket of the gateway's own user. And the command that mints tokens for it. */
import fs from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import path from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import type { ConfigInput } from '../../../proxy/config/schema.ts'
import { startTestGateway, type TestGateway } from '../../integration/test-gateway.ts'
import { createAuthority } from '../../origins/certificates.ts'
import { runMain } from '../cli/run-cli.ts'

const undo: (() => unknown)[] = []
afterEach(async () => {
  for (const step of undo.splice(0).toReversed()) await step()
})

async function start(document: ConfigInput): Promise<TestGateway> {
  const gateway = await startTestGateway(document)
  undo.push(() => gateway.close())
  return gateway
}

function folder(): string {
  const made = fs.mkdtempSync('/tmp/sp-in-')
  undo.push(() => fs.rmSync(made, { recursive: true, force: true }))
  return made
}

interface Reply {
  readonly status: number | undefined
  readonly body: Record<string, unknown>
}

async function ask(
  options: https.RequestOptions & { readonly body?: object },
  via: typeof http | typeof https,
): Promise<Reply> {
  const { body, ...rest } = options
  return new Promise((resolve, reject) => {
    const request = via.request(
      { agent: false, headers: body && { 'content-type': 'application/json' }, ...rest },
      (response) => {
        let text = ''
        response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
        response.on('end', () =>
          resolve({ status: response.statusCode, body: JSON.parse(text || '{}') as Record<string, unknown> }),
        )
      },
    )
    request.on('error', reject)
    request.end(body && JSON.stringify(body))
  })
}

describe('a client certificate', () => {
  test('of the authority that the configuration names has its scopes; any other is nobody’s', async () => {
    const at = folder()
    const file = (name: string, text: string): string => {
      fs.writeFileSync(path.join(at, name), text, { mode: 0o600 })
      return path.join(at, name)
    }
    const authority = createAuthority()
    const stranger = createAuthority()
    const server = authority.issue('gateway', { addresses: ['127.0.0.1'] })
    const [reader, unknown, forged] = [
      authority.issue('reader', { client: true }),
      authority.issue('unknown', { client: true }),
      stranger.issue('reader', { client: true }),
    ]
    const gateway = await start({
      admin: {
        tls: {
          cert: file('cert.pem', server.cert),
          key: file('key.pem', server.key),
          clientCa: file('ca.pem', authority.cert),
        },
        clients: [{ name: 'the reader', commonName: 'reader', scopes: ['read'] }],
      },
    })
    const call = (identity: { cert: string; key: string } | undefined, more: object = {}) =>
      ask(
        {
          host: '127.0.0.1',
          port: gateway.adminPort,
          path: '/v1/tunnels',
          rejectUnauthorized: false,
          ...identity,
          ...more,
        },
        https,
      )
    expect(await call(reader)).toMatchObject({ status: 200, body: { open: 0 } })
    expect(await call(reader, { method: 'POST', path: '/v1/revocations', body: { tenant: 'x' } })).toMatchObject({
      status: 403,
    })
    expect(await call(unknown)).toMatchObject({ status: 401, body: { error: 'credentials_invalid' } })
    expect(await call(forged)).toMatchObject({ status: 401, body: { error: 'credentials_missing' } })
    expect(await call(undefined)).toMatchObject({ status: 401, body: { error: 'credentials_missing' } })
    // And there is no way in without TLS.
    await expect(ask({ host: '127.0.0.1', port: gateway.adminPort, path: '/healthz' }, http)).rejects.toThrow()
  })
})

describe('the socket', () => {
  test('is for its owner alone, who needs no token and is written down as `unix`', async () => {
    const socket = path.join(folder(), 'admin.sock')
    const gateway = await start({ listen: { admin: `unix:${socket}` } })
    expect(fs.statSync(socket).mode & 0o777).toBe(0o600)
    expect(await ask({ socketPath: socket, path: '/v1/tunnels' }, http)).toMatchObject({ status: 200 })
    const body = { tenant: 'acme' }
    expect(await ask({ socketPath: socket, path: '/v1/revocations', method: 'POST', body }, http)).toMatchObject({
      status: 201,
    })
    await gateway.auditLine(({ action, author }) => action === 'revoke' && author === 'unix')
    // Credentials that are bad are bad here too.
    const headers = { authorization: 'Bearer x' }
    expect(await ask({ socketPath: socket, path: '/v1/tunnels', headers }, http)).toMatchObject({ status: 401 })
  })
})

describe('sallyport token mint --admin', () => {
  test('makes a token that the gateway takes, with the scopes that were asked for and no more', async () => {
    const gateway = await start({})
    const config = path.join(gateway.folder, 'sallyport.yaml')
    fs.writeFileSync(config, 'state: state\n')
    await runMain(['keys', 'generate', '--config', config])
    const mint = (...args: string[]) => runMain(['token', 'mint', '--admin', '--config', config, ...args])
    const { stdout, code } = await mint('--scope', 'read', '--name', 'alice')
    expect(code).toBe(0)
    const call = (method: string, route: string, body?: object) =>
      ask(
        {
          host: '127.0.0.1',
          port: gateway.adminPort,
          path: route,
          method,
          headers: { authorization: `Bearer ${stdout.trim()}`, ...(body && { 'content-type': 'application/json' }) },
          ...(body && { body }),
        },
        http,
      )
    await expect.poll(async () => (await call('GET', '/v1/tunnels')).status, { timeout: 5000 }).toBe(200)
    expect(await call('POST', '/v1/revocations', { tenant: 'x' })).toMatchObject({ status: 403 })
    for (const wrong of [
      [],
      ['--scope', 'root'],
      ['--scope', 'read', '--sandbox', 'x'],
      ['--scope', 'read', '--allow', 'a.example'],
      ['--scope', 'read', '--ttl', '25h'],
    ])
      expect([wrong, (await mint(...wrong)).code]).toEqual([wrong, 3])
    expect((await runMain(['token', 'mint', '--config', config, '--scope', 'read'])).code).toBe(3)
    expect(JSON.parse((await mint('--scope', 'read,policy', '--json')).stdout)).toMatchObject({
      scopes: ['read', 'policy'],
    })
  })
})
