/** How a token must stand in the URL of a proxy: which forms each client sends. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Clients, startClients, urlOf } from './fixture.ts'
import { describeWith, pythonInterpreter } from './installed.ts'

const FORMS = ['user:TOKEN@', ':TOKEN@', 'TOKEN@'] as const

const BOTH_NEEDED = ['user:TOKEN@']
const PASSWORD_NEEDED = ['user:TOKEN@', ':TOKEN@']

let clients: Clients
beforeAll(async () => {
  clients = await startClients()
})
afterAll(() => clients.close())

/** The forms with which a client got through. */
async function formsThatWork(argv: (url: string) => [string, ...string[]]): Promise<readonly string[]> {
  const runs = await Promise.all(
    FORMS.map(async (form, index) => {
      const id = `form-${index}`
      const url = clients.proxyUrl.replace('://', `://${form.replace('TOKEN', await clients.namedToken(id))}`)
      const { lines } = await clients.run({
        argv: argv(urlOf(clients.allowed, 'https')),
        env: { https_proxy: url, HTTPS_PROXY: url, NODE_USE_ENV_PROXY: '1' },
      })
      return lines.some((line) => line['token_id'] === id) ? [form] : []
    }),
  )
  return runs.flat()
}

describeWith('curl', 'curl', () => {
  test('needs the token as password', async () => {
    expect(await formsThatWork((url) => ['curl', '-sS', url])).toEqual(PASSWORD_NEEDED)
  })
})

describeWith('git', 'git', () => {
  test('needs the token as password', async () => {
    expect(await formsThatWork((url) => ['git', 'ls-remote', url])).toEqual(PASSWORD_NEEDED)
  })
})

describeWith('wget', 'wget', () => {
  test('needs both', async () => {
    expect(await formsThatWork((url) => ['wget', '-qO-', '-t1', url])).toEqual(BOTH_NEEDED)
  })
})

describeWith('Python with requests', 'Python', () => {
  test.each([
    ['urllib', 'from urllib.request import urlopen; urlopen'],
    ['requests', 'import requests; requests.get'],
  ])('%s needs both', async (_name, get) => {
    expect(await formsThatWork((url) => [pythonInterpreter(), '-c', `${get}('${url}')`])).toEqual(BOTH_NEEDED)
  })
})

describe('Node', () => {
  test('fetch needs both', async () => {
    expect(await formsThatWork((url) => [process.execPath, '-e', `fetch('${url}')`])).toEqual(BOTH_NEEDED)
  })
  test('https needs the token as password', async () => {
    const program = (url: string) => `https.get('${url}', (answer) => answer.resume())`
    expect(await formsThatWork((url) => [process.execPath, '-e', program(url)])).toEqual(PASSWORD_NEEDED)
  })
})
