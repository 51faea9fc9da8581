/** Node's proxy agents: undici's ProxyAgent, https-proxy-agent, http-proxy-agent, and `ws` through one. */
import fs from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import { inspect } from 'node:util'
import { HttpProxyAgent } from 'http-proxy-agent'
import { HttpsProxyAgent } from 'https-proxy-agent'
import { fetch, ProxyAgent } from 'undici'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { example } from './documented.ts'
import { type Clients, GREETING, startClients, urlOf } from './fixture.ts'

let clients: Clients

describe('over plain TCP to the gateway', () => {
  beforeAll(async () => {
    clients = await startClients()
    for (const server of [clients.origins.tls, clients.origins.plain]) {
      new WebSocketServer({ server }).on('connection', (socket) =>
        socket.on('message', (data) => socket.send(data, { binary: false })),
      )
    }
  })
  afterAll(() => clients.close())

  test('ProxyAgent: a Bearer token; everything through CONNECT', async () => {
    const run = await clients.run(example('undici', clients.allowed))
    expect(run).toMatchObject({ code: 0, outcomes: ['allow', 'allow'], dialects: ['connect', 'connect'] })
    expect(run.stdout).toBe(`200 ${GREETING.tls}\n\n200 ${GREETING.plain}\n\n`)
    const refused = await clients.run(example('undici', clients.denied))
    expect(refused).toMatchObject({ code: 1, outcomes: ['host_not_allowed'] })
    expect(refused.stderr).toContain('Proxy response (403) !== 200 when HTTP Tunneling')
  })

  test('ProxyAgent with `proxyTunnel: false`: plain HTTP in absolute form, and the reason in the answer', async () => {
    const dispatcher = new ProxyAgent({ uri: clients.proxyUrl, token: `Bearer ${clients.token}`, proxyTunnel: false })
    const get = async (url: string) => {
      const answer = await fetch(url, { dispatcher })
      return { status: answer.status, reason: answer.headers.get('x-deny-reason'), body: await answer.text() }
    }
    const run = await clients.during(() => get(urlOf(clients.allowed, 'http')))
    expect(run).toMatchObject({ status: 200, body: `${GREETING.plain}\n`, outcomes: ['allow'], dialects: ['http'] })
    const refused = await clients.during(() => get(urlOf(clients.denied, 'http')))
    expect(refused).toMatchObject({ status: 403, reason: 'host_not_allowed', outcomes: ['host_not_allowed'] })
    await dispatcher.close()
  })

  test('https-proxy-agent: TLS; a refusal is an answer with the reason', async () => {
    const run = await clients.run(example('https-proxy-agent', clients.allowed, clients.proxyVariables))
    expect(run).toMatchObject({
      code: 0,
      stdout: `200 undefined\n${GREETING.tls}\n`,
      outcomes: ['allow'],
      dialects: ['connect'],
    })
    const refused = await clients.run(example('https-proxy-agent', clients.denied, clients.proxyVariables))
    expect(refused.stdout).toContain('403 host_not_allowed\n')
    expect(refused.outcomes).toEqual(['host_not_allowed'])
  })

  test('http-proxy-agent: plain HTTP in absolute form', async () => {
    const run = await clients.run(example('http-proxy-agent', clients.allowed, clients.proxyVariables))
    expect(run).toMatchObject({
      code: 0,
      stdout: `200 undefined\n${GREETING.plain}\n`,
      outcomes: ['allow'],
      dialects: ['http'],
    })
    const refused = await clients.run(example('http-proxy-agent', clients.denied, clients.proxyVariables))
    expect(refused.stdout).toContain('403 host_not_allowed\n')
    expect(refused.stdout).toContain('"error":"host_not_allowed"')
  })

  test('ws: wss and ws through CONNECT; a refusal shows its reason', async () => {
    const run = await clients.run(example('websocket', clients.allowed, clients.proxyVariables))
    expect(run).toMatchObject({
      code: 0,
      stdout: 'hello\nhello\n',
      outcomes: ['allow', 'allow'],
      dialects: ['connect', 'connect'],
    })
    const refused = await clients.run(example('websocket', clients.denied, clients.proxyVariables))
    expect(refused.outcomes).toEqual(['host_not_allowed', 'host_not_allowed'])
    expect(refused.stdout).toBe('403 host_not_allowed\n403 host_not_allowed\n')
  })
})

describe('over TLS to the gateway', () => {
  let ca: string
  beforeAll(async () => {
    clients = await startClients({ tlsToProxy: true })
    ca = fs.readFileSync(clients.caFile, 'utf8')
  })
  afterAll(() => clients.close())

  test('ProxyAgent', async () => {
    const dispatcher = new ProxyAgent({
      uri: clients.proxyUrl,
      token: `Bearer ${clients.token}`,
      proxyTls: { ca },
      requestTls: { ca },
    })
    const run = await clients.during(async () => ({
      body: await (await fetch(urlOf(clients.allowed, 'https'), { dispatcher })).text(),
    }))
    expect(run).toMatchObject({ body: `${GREETING.tls}\n`, outcomes: ['allow'] })
    const refused = await clients.during(async () => ({
      error: inspect(await fetch(urlOf(clients.denied, 'https'), { dispatcher }).catch((error: unknown) => error)),
    }))
    expect(refused.outcomes).toEqual(['host_not_allowed'])
    expect(refused.error).toContain('Proxy response (403) !== 200 when HTTP Tunneling')
    await dispatcher.close()
  })

  test('https-proxy-agent and http-proxy-agent', async () => {
    const secure = await clients.during(() =>
      get(https, urlOf(clients.allowed, 'https'), new HttpsProxyAgent(clients.loginUrl, { ca })),
    )
    expect(secure).toMatchObject({ status: 200, body: `${GREETING.tls}\n`, outcomes: ['allow'] })
    const plain = await clients.during(() =>
      get(http, urlOf(clients.allowed, 'http'), new HttpProxyAgent(clients.loginUrl, { ca })),
    )
    expect(plain).toMatchObject({ status: 200, body: `${GREETING.plain}\n`, outcomes: ['allow'] })
    const refused = await clients.during(() =>
      get(https, urlOf(clients.denied, 'https'), new HttpsProxyAgent(clients.loginUrl, { ca })),
    )
    expect(refused).toMatchObject({ status: 403, reason: 'host_not_allowed', outcomes: ['host_not_allowed'] })
  })

  async function get(module: typeof http | typeof https, url: string, agent: http.Agent) {
    return new Promise<{ status: number | undefined; reason: unknown; body: string }>((resolve, reject) => {
      const request = module.get(url, { agent, ca }, (answer) => {
        let body = ''
        answer.setEncoding('utf8').on('data', (chunk: string) => (body += chunk))
        answer.on('end', () => resolve({ status: answer.statusCode, reason: answer.headers['x-deny-reason'], body }))
        answer.on('error', reject)
      })
      request.on('error', reject)
    })
  }
})
