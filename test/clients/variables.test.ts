/** Which variable each client reads: the table of docs/clients.md, cell by cell. */
import fs from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Clients, startClients } from './fixture.ts'
import { describeWith, pythonInterpreter } from './installed.ts'

const VARIABLES = ['https_proxy', 'HTTPS_PROXY', 'http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'] as const
type Scheme = 'https' | 'http'

const needs = {
  curl: 'curl',
  git: 'git',
  wget: 'wget',
  'Python urllib': 'Python with requests',
  'Python requests': 'Python with requests',
} as const

let clients: Clients
beforeAll(async () => {
  clients = await startClients()
})
afterAll(() => clients.close())

/** By address, so that a client that goes its own way asks no name server. */
const target = (scheme: Scheme) =>
  `${scheme}://127.66.0.1:${scheme === 'https' ? clients.allowed.tlsPort : clients.allowed.plainPort}/`

const commands: Readonly<Record<string, (url: string) => [string, ...string[]]>> = {
  curl: (url) => ['curl', '-sS', url],
  git: (url) => ['git', 'ls-remote', url],
  wget: (url) => ['wget', '-qO-', url],
  'Python urllib': (url) => [pythonInterpreter(), '-Sc', `from urllib.request import urlopen; urlopen('${url}')`],
  'Python requests': (url) => [pythonInterpreter(), '-c', `import requests; requests.get('${url}')`],
  'Node `fetch`': (url) => [process.execPath, '--input-type=module', '--eval', `await fetch('${url}')`],
  'Node `http`, `https`': (url) => [
    process.execPath,
    '--input-type=module',
    '--eval',
    `(await import('${new URL(url).protocol.slice(0, -1)}')).get('${url}', (answer) => answer.resume())`,
  ],
  npm: (url) => ['npm', 'view', 'small', '--registry', url, '--fetch-retries=0', '--cache', clients.folder],
}

/** Rows of the table whose header names the variables: client, scheme, and the variables that it reads. */
function readTable(): { client: string; scheme: Scheme; reads: string[] }[] {
  const page = fs.readFileSync(new URL('../../docs/clients.md', import.meta.url), 'utf8')
  const rows = page.split('\n').filter((line) => /^\|[^|]+\| *`(https|http):` *\|/.test(line))
  return rows.map((row) => {
    const [client = '', scheme = '', ...cells] = row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim())
    return {
      client,
      scheme: scheme.replace(/[`:]/g, '') as Scheme,
      reads: VARIABLES.filter((_name, index) => cells[index] === 'yes'),
    }
  })
}

const rows = readTable()
test('the table has every client', () => {
  expect(new Set(rows.map(({ client }) => client))).toEqual(new Set(Object.keys(commands)))
  // npm asks its registry over TLS.
  expect(rows).toHaveLength(2 * Object.keys(commands).length - 1)
})

for (const { client, scheme, reads } of rows) {
  const body = () => {
    test(`${client}, ${scheme}`, async () => {
      // A token of its own for each variable tells which of them brought the client to the gateway.
      const reach = async (names: readonly string[]) => {
        const env: Record<string, string> = { NODE_USE_ENV_PROXY: '1', NPM_CONFIG_CAFILE: clients.caFile }
        for (const name of names)
          env[name] = clients.proxyUrl.replace('://', `://sandbox:${await clients.namedToken(name)}@`)
        const { lines } = await clients.run({ argv: commands[client]!(target(scheme)), env })
        return names.filter((name) => lines.some((line) => line['token_id'] === name))
      }
      expect(reads).not.toEqual([])
      for (const name of reads) expect(await reach([name]), name).toEqual([name])
      expect(await reach(VARIABLES.filter((name) => !reads.includes(name)))).toEqual([])
    })
  }
  if (client in needs) describeWith(needs[client as keyof typeof needs], 'variables', body)
  else describe('variables', body)
}

describe('NO_PROXY', () => {
  test.each(['curl', 'Python requests', 'Node `fetch`'])(
    '%s goes its own way to what is named there',
    async (client) => {
      const run = await clients.run({
        argv: commands[client]!(target('https')),
        env: { ...clients.proxyVariables, NO_PROXY: '127.66.0.1', no_proxy: '127.66.0.1' },
      })
      expect(run).toMatchObject({ code: 0, outcomes: [] })
    },
  )
  test.each(['curl', 'Python requests', 'Node `fetch`'])(
    '%s with this machine alone there goes through the gateway',
    async (client) => {
      const none = 'localhost,127.0.0.1,::1'
      const run = await clients.run({
        argv: commands[client]!(target('https')),
        env: { ...clients.proxyVariables, NO_PROXY: none, no_proxy: none },
      })
      expect(run).toMatchObject({ code: 0, outcomes: ['allow'] })
    },
  )
})
