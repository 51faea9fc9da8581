/** Python: urllib of the standard library, and requests. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { example } from './documented.ts'
import { type Clients, GREETING, startClients, urlOf } from './fixture.ts'
import { describeWith, pythonInterpreter } from './installed.ts'

describeWith('Python with requests', 'Python', () => {
  let clients: Clients
  beforeAll(async () => {
    clients = await startClients()
  })
  afterAll(() => clients.close())

  describe('urllib', () => {
    test('TLS and plain HTTP', async () => {
      const run = await clients.run(example('python-urllib', clients.allowed, clients.proxyVariables))
      expect(run).toMatchObject({ code: 0, outcomes: ['allow', 'allow'], dialects: ['connect', 'http'] })
      expect(run.stdout).toBe(`${GREETING.tls}\n\n${GREETING.plain}\n\n`)
    })

    test('a refusal: the status and the reason phrase; in plain HTTP the header', async () => {
      const run = await clients.run(example('python-urllib', clients.denied, clients.proxyVariables))
      expect(run.outcomes).toEqual(['host_not_allowed'])
      expect(run.stderr).toContain('Tunnel connection failed: 403 Host Not Allowed')
      const program = `
import urllib.request, urllib.error
try: urllib.request.urlopen('${urlOf(clients.denied, 'http')}')
except urllib.error.HTTPError as error: print(error.code, error.headers['x-deny-reason'])`
      const plain = await clients.run({ argv: [pythonInterpreter(), '-c', program], env: clients.proxyVariables })
      expect(plain).toMatchObject({ stdout: '403 host_not_allowed\n', outcomes: ['host_not_allowed'] })
    })
  })

  describe('requests', () => {
    test('TLS and plain HTTP by variables', async () => {
      const run = await clients.run(example('python-requests', clients.allowed, clients.proxyVariables))
      expect(run).toMatchObject({ code: 0, outcomes: ['allow', 'allow'], dialects: ['connect', 'http'] })
      expect(run.stdout).toBe(`${GREETING.tls}\n\n${GREETING.plain}\n\n`)
    })

    test('`proxies` in place of variables, and a session of many requests', async () => {
      const program = `
import os, requests
session = requests.Session()
session.proxies = {scheme: '${clients.loginUrl}' for scheme in ('http', 'https')}
for url in ('${urlOf(clients.allowed, 'https')}', '${urlOf(clients.allowed, 'http')}') * 3: print(session.post(url, data=b'x' * 100000).status_code)`
      const run = await clients.run({ argv: [pythonInterpreter(), '-c', program] })
      expect(run.stdout, run.stderr).toBe('200\n'.repeat(6))
      expect(run.outcomes).toEqual(['allow', 'allow', 'allow', 'allow'])
      expect(run.connections).toBe(2)
    })

    test('a refusal: the status and the reason phrase; in plain HTTP the header', async () => {
      const run = await clients.run(example('python-requests', clients.denied, clients.proxyVariables))
      expect(run.outcomes).toContain('host_not_allowed')
      expect(run.stderr).toContain('Tunnel connection failed: 403 Host Not Allowed')
      const program = `import requests; answer = requests.get('${urlOf(clients.denied, 'http')}'); print(answer.status_code, answer.headers['x-deny-reason'], answer.json()['error'])`
      const plain = await clients.run({ argv: [pythonInterpreter(), '-c', program], env: clients.proxyVariables })
      expect(plain).toMatchObject({ stdout: '403 host_not_allowed host_not_allowed\n', outcomes: ['host_not_allowed'] })
    })
  })
})

describeWith('Python with requests', 'Python, with TLS to the gateway', () => {
  let clients: Clients
  beforeAll(async () => {
    clients = await startClients({ tlsToProxy: true })
  })
  afterAll(() => clients.close())

  test('requests can, for both schemes', async () => {
    const run = await clients.run(example('python-requests', clients.allowed, clients.proxyVariables))
    expect(run, run.stderr).toMatchObject({ code: 0, outcomes: ['allow', 'allow'], dialects: ['connect', 'http'] })
  })

  test("urllib can't for https: targets: it speaks in the clear, and nothing is let out", async () => {
    const run = await clients.run(example('python-urllib', clients.allowed, clients.proxyVariables))
    expect(run.code).toBe(1)
    expect(run.stderr).toContain('Remote end closed connection')
    expect(run.outcomes).toEqual([])
  })
})
