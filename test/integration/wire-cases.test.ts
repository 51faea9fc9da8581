/** The handed cases on tokens and on targets, again, over the wire: a parser that is right does not help when another one reads the bytes before it. */
import fs from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { ConfigInput } from '../../proxy/config/schema.ts'
import { type Origin, startEcho } from '../origins/origins.ts'
import {
  buildToken,
  type CaseKeys,
  createCaseKeys,
  expectedReasons,
  sendToken,
  tokenCases,
  writeCaseIssuers,
} from '../proxy/tokens/token-cases.ts'
import { startTestGateway, type TestGateway } from './test-gateway.ts'
import { WireClient } from './wire.ts'

const HOST = '127.66.0.2'
let folder: string
let gateway: TestGateway
let echo: Origin
let keys: CaseKeys
let trapUrl: string
let trapped = 0
const trap = createServer((_request, response) => {
  trapped++
  response.end('{"keys":[]}')
})

beforeAll(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-cases-'))
  await new Promise<void>((resolve) => trap.listen(0, '127.0.0.1', resolve))
  trapUrl = `http://127.0.0.1:${(trap.address() as AddressInfo).port}`
  echo = await startEcho(HOST)
  keys = createCaseKeys()
  gateway = await startTestGateway({
    issuers: writeCaseIssuers(keys, folder) as NonNullable<ConfigInput['issuers']>,
    policy: { ceiling: { kind: 'allow-all' } },
    network: { allowPrivate: ['127.66.0.0/24'], hosts: { 'ok.example.test': HOST } },
    limits: { perSandbox: { newPerSecond: 100_000 } },
  })
})

afterAll(async () => {
  await gateway.close()
  await echo.close()
  await new Promise((resolve) => trap.close(resolve))
  fs.rmSync(folder, { recursive: true, force: true })
})

describe('token.json on the wire', () => {
  test.each(tokenCases.cases.map((one) => [one.name, one] as const))('%s', async (_name, one) => {
    const token = buildToken(one, keys, trapUrl)
    const sent = sendToken(one, token)
    const [host] = tokenCases.target.split(':') as [string]
    const target = `${host}:${echo.port}`
    const linesBefore = gateway.audit().length
    const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
    try {
      const reason =
        sent.kind === 'socks5' ? await overSocks(client, sent, target) : await overConnect(client, sent, target)
      if (one.accepted) expect(reason).toBe('accepted')
      else if (reason === 'accepted') throw new Error('the token was accepted')
      else if (sent.kind === 'http')
        expect([...expectedReasons(one), ...(one.denied === undefined ? [] : [one.denied])]).toContain(reason)
      const line = await gateway.auditLine(
        (each) => Number(each['seq']) > linesBefore && (each['kind'] === 'decision' || each['kind'] === 'auth'),
      )
      expect(line['kind']).toBe(one.accepted || one.denied !== undefined ? 'decision' : 'auth')
      if (token.length > 12) expect(JSON.stringify(gateway.audit().slice(linesBefore))).not.toContain(token)
    } finally {
      client.destroy()
    }
  })

  test('no key was fetched from where a token said', () => expect(trapped).toBe(0))
})

interface TargetCase {
  readonly name: string
  readonly target?: string
  readonly targetBase64?: string
  readonly host?: string
  readonly port?: number
  readonly reason?: string
  readonly or?: { readonly reason: string }
  readonly wireReasons?: readonly string[]
}

const { cases: targetCases } = JSON.parse(
  fs.readFileSync(new URL('../cases/authority.json', import.meta.url), 'utf8'),
) as { cases: TargetCase[] }

describe('authority.json on the wire', () => {
  // Without an egress claim nothing is let out: what is well-formed is refused by policy, and its audit line holds what was read.
  test.each(targetCases.map((one) => [one.name, one] as const))('%s', async (_name, one) => {
    const token = await gateway.token({ sub: 'sbx_targets' })
    const target =
      one.targetBase64 === undefined ? Buffer.from(one.target!, 'utf8') : Buffer.from(one.targetBase64, 'base64')
    const linesBefore = gateway.audit().length
    const client = await WireClient.connect({ port: gateway.port, host: '127.0.0.1' })
    try {
      client.send(
        Buffer.concat([
          Buffer.from('CONNECT '),
          target,
          Buffer.from(` HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${token}\r\n\r\n`),
        ]),
      )
      const answer = await client.answer()
      const reason = answer?.headers['x-deny-reason']?.join() ?? 'closed'
      if (one.host === undefined || (one.or !== undefined && reason === one.or.reason)) {
        expect(one.wireReasons ?? [one.reason ?? one.or?.reason]).toContain(reason)
        expect(answer?.status).toBe(400)
        return
      }
      expect(answer?.status).toBe(403)
      const body = JSON.parse(answer!.body) as Record<string, unknown>
      expect({ host: body['host'], port: body['port'] }).toEqual({ host: one.host, port: one.port })
      const line = await gateway.auditLine((each) => Number(each['seq']) > linesBefore && each['kind'] === 'decision')
      expect({ host: line['host'], port: line['port'] }).toEqual({ host: one.host, port: one.port })
    } finally {
      client.destroy()
    }
  })
})

async function overConnect(
  client: WireClient,
  sent: Extract<ReturnType<typeof sendToken>, { kind: 'http' }>,
  target: string,
): Promise<string> {
  const headers = Object.entries(sent.headers).map(([name, value]) => `${name}: ${value}\r\n`)
  const credentials = sent.proxyAuthorization === undefined ? '' : `Proxy-Authorization: ${sent.proxyAuthorization}\r\n`
  client.send(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${credentials}${headers.join('')}\r\n`)
  const answer = await client.answer()
  return answer?.status === 200 ? 'accepted' : (answer?.headers['x-deny-reason']?.join() ?? 'closed')
}

async function overSocks(
  client: WireClient,
  sent: { readonly user: Buffer; readonly password: Buffer },
  target: string,
): Promise<string> {
  const [host, port] = target.split(':') as [string, string]
  client.send(Buffer.from([5, 1, 2]))
  await client.take(2)
  client.send(
    Buffer.concat([Buffer.from([1, sent.user.length]), sent.user, Buffer.from([sent.password.length]), sent.password]),
  )
  if ((await client.take(2))[1] !== 0) return 'refused'
  client.send(
    Buffer.concat([
      Buffer.from([5, 1, 0, 3, host.length]),
      Buffer.from(host),
      Buffer.from([Number(port) >> 8, Number(port) & 255]),
    ]),
  )
  return (await client.take(10))[1] === 0 ? 'accepted' : 'refused'
}
