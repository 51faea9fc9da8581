/** Node by variables alone: fetch, the http and https modules, and the WebSocket that it brings. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { example } from './documented.ts'
import { type Clients, GREETING, startClients, urlOf } from './fixture.ts'

let clients: Clients
const evaluate = (program: string) => ({
  argv: [process.execPath, '--input-type=module', '--eval', program] as [string, ...string[]],
  env: clients.proxyVariables,
})

beforeAll(async () => {
  clients = await startClients()
  for (const server of [clients.origins.tls, clients.origins.plain]) {
    new WebSocketServer({ server }).on('connection', (socket) =>
      socket.on('message', (data) => socket.send(data, { binary: false })),
    )
  }
})
afterAll(() => clients.close())

describe('fetch', () => {
  test('TLS, and plain HTTP too, through CONNECT', async () => {
    const run = await clients.run(example('node-fetch', clients.allowed, clients.proxyVariables))
    expect(run).toMatchObject({ code: 0, outcomes: ['allow', 'allow'], dialects: ['connect', 'connect'] })
    expect(run.stdout).toBe(`200 ${GREETING.tls}\n\n200 ${GREETING.plain}\n\n`)
  })

  test('a refusal: the status, in the cause of the cause', async () => {
    const run = await clients.run(example('node-fetch', clients.denied, clients.proxyVariables))
    expect(run).toMatchObject({ code: 1, outcomes: ['host_not_allowed'] })
    expect(run.stderr).toContain('Proxy response (403) !== 200 when HTTP Tunneling')
  })

  test('without NODE_USE_ENV_PROXY it goes its own way', async () => {
    const { NODE_USE_ENV_PROXY: _left, ...variables } = clients.proxyVariables
    // An address: a name would be asked for outside.
    const url = `https://127.66.0.1:${clients.allowed.tlsPort}/`
    const run = await clients.run({ ...evaluate(`console.log((await fetch('${url}')).status)`), env: variables })
    expect(run).toMatchObject({ stdout: '200\n', outcomes: [] })
  })
})

describe('http and https', () => {
  test('TLS through CONNECT, plain HTTP in absolute form', async () => {
    const run = await clients.run(example('node-http', clients.allowed, clients.proxyVariables))
    expect(run.stdout).toContain(GREETING.tls)
    expect(run.stdout).toContain(GREETING.plain)
    expect(run).toMatchObject({ code: 0, outcomes: ['allow', 'allow'] })
    expect([...run.dialects].sort()).toEqual(['connect', 'http'])
  })

  test('a refusal: an error with the status; in plain HTTP the answer', async () => {
    const program = (scheme: string) => `
      import http from 'node:http'; import https from 'node:https'
      ${scheme}.get('${urlOf(clients.denied, scheme as 'http')}', (answer) => console.log(answer.statusCode, answer.headers['x-deny-reason'])).on('error', (error) => console.log(error.code, error.message))`
    const secure = await clients.run(evaluate(program('https')))
    expect(secure.outcomes).toEqual(['host_not_allowed'])
    expect(secure.stdout).toContain('ERR_PROXY_TUNNEL')
    expect(secure.stdout).toContain('403 Host Not Allowed')
    const plain = await clients.run(evaluate(program('http')))
    expect(plain).toMatchObject({ stdout: '403 host_not_allowed\n', outcomes: ['host_not_allowed'] })
  })
})

describe('WebSocket', () => {
  const program = (url: string) => `
    const socket = new WebSocket('${url}')
    socket.onopen = () => socket.send('over the top')
    socket.onmessage = ({ data }) => { console.log(data); socket.close() }
    socket.onerror = ({ message, error }) => { console.log('error', message, error?.cause?.message) }`

  test.each(['wss', 'ws'] as const)('%s, through CONNECT', async (scheme) => {
    const run = await clients.run(evaluate(program(urlOf(clients.allowed, scheme))))
    expect(run).toMatchObject({ stdout: 'over the top\n', outcomes: ['allow'], dialects: ['connect'] })
    const refused = await clients.run(evaluate(program(urlOf(clients.denied, scheme))))
    expect(refused.outcomes).toEqual(['host_not_allowed'])
    expect(refused.stdout).toContain('error')
  })
})
