/** What `sallyport env` prints gets clients through by itself: they are given nothing else. */
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { exampleText } from './documented.ts'
import { type Clients, GREETING, startClients, urlOf } from './fixture.ts'
import { describeWith, pythonInterpreter } from './installed.ts'
import { runProgram } from './program.ts'

const BIN = path.resolve(import.meta.dirname, '../../provider/cli/bin.ts')
let clients: Clients
/** Lines for a shell, as the command prints them. */
let printed: string

/** Nothing but where programs lie. */
function bareEnvironment(): Record<string, string> {
  const { PATH = '', JAVA_HOME } = process.env
  return {
    PATH: `${path.dirname(process.execPath)}:${PATH}`,
    HOME: clients.folder,
    ...(JAVA_HOME !== undefined && { JAVA_HOME }),
  }
}

/** Runs `script` in a shell that has taken over what was printed. */
function inPrintedEnvironment(script: string) {
  return clients.during(() =>
    runProgram({
      argv: ['bash', '--norc', '-euc', `${printed}\n${script}`],
      env: bareEnvironment(),
      cwd: clients.folder,
    }),
  )
}

beforeAll(async () => {
  clients = await startClients({
    onRequest: (request, response) => {
      const bodies: Record<string, string> = {
        '/': `${'encrypted' in request.socket ? GREETING.tls : GREETING.plain}\n`,
        '/small': JSON.stringify({
          name: 'small',
          'dist-tags': { latest: '1.2.3' },
          versions: { '1.2.3': { name: 'small', version: '1.2.3' } },
        }),
        '/project.git/info/refs': `${'0'.repeat(39)}1\trefs/heads/main\n`,
      }
      const body = bodies[new URL(request.url ?? '', 'http://origin.invalid').pathname]
      response.statusCode = body === undefined ? 404 : 200
      response.end(body)
    },
  })
  const tokenFile = path.join(clients.folder, 'token')
  fs.writeFileSync(tokenFile, clients.token, { mode: 0o600 })
  const argv = [
    process.execPath,
    BIN,
    'env',
    '--proxy',
    clients.proxyUrl,
    '--token-file',
    tokenFile,
    '--ca',
    clients.caFile,
  ]
  const run = await runProgram({ argv: argv as [string, ...string[]], env: bareEnvironment() })
  expect(run.code, run.stderr).toBe(0)
  printed = run.stdout
})
afterAll(() => clients.close())

describeWith('curl', 'the short way of the documentation', () => {
  test('eval', async () => {
    const folder = path.join(clients.folder, 'bin')
    fs.mkdirSync(folder)
    fs.writeFileSync(path.join(folder, 'sallyport'), `#!/bin/sh\nexec ${process.execPath} ${BIN} "$@"\n`, {
      mode: 0o755,
    })
    fs.writeFileSync(path.join(clients.folder, 'sandbox.token'), clients.token)
    const { PATH = '', ...env } = bareEnvironment()
    const script = `${exampleText('env', clients.allowed)}\ncurl -sS ${urlOf(clients.allowed, 'https')}`
    const run = await clients.during(() =>
      runProgram({
        argv: ['bash', '--norc', '-euc', script],
        env: { ...env, PATH: `${folder}:${PATH}`, SALLYPORT_PROXY: clients.proxyUrl, CURL_CA_BUNDLE: clients.caFile },
        cwd: clients.folder,
      }),
    )
    expect(run, run.stderr).toMatchObject({ code: 0, stdout: `${GREETING.tls}\n`, outcomes: ['allow'] })
  })

  test('by hand', async () => {
    const text = exampleText('by-hand', clients.allowed).replace('127.0.0.1:3128', clients.proxyUrl.slice(7))
    const fetching = `node --input-type=module <<'end'\n${exampleText('node-fetch', clients.allowed)}\nend`
    const run = await clients.run({
      argv: ['bash', '--norc', '-euc', `${text}\ncurl -sS ${urlOf(clients.allowed, 'https')}\n${fetching}`],
    })
    expect(run, run.stderr).toMatchObject({ code: 0, outcomes: ['allow', 'allow', 'allow'] })
  })
})

describeWith('curl', 'curl', () => {
  test('over TLS and in plain', async () => {
    const run = await inPrintedEnvironment(
      `curl -sS ${urlOf(clients.allowed, 'https')} ${urlOf(clients.allowed, 'http')}`,
    )
    expect(run).toMatchObject({ code: 0, stdout: `${GREETING.tls}\n${GREETING.plain}\n`, outcomes: ['allow', 'allow'] })
  })
  test('a refused host', async () => {
    const run = await inPrintedEnvironment(`curl -sSv ${urlOf(clients.denied, 'https')}`)
    expect(run.outcomes).toEqual(['host_not_allowed'])
    expect(run.stderr).toContain('403 Host Not Allowed')
  })
})

describeWith('git', 'git', () => {
  test('sends the credentials at once', async () => {
    const run = await inPrintedEnvironment(`git ls-remote ${urlOf(clients.allowed, 'https')}project.git`)
    expect(run.stdout, run.stderr).toContain('refs/heads/main')
    expect(run.outcomes).toEqual(['allow'])
  })
})

test('npm', async () => {
  const run = await inPrintedEnvironment(
    `npm view small version --registry ${urlOf(clients.allowed, 'https')} --fetch-retries=0 --cache ${clients.folder}`,
  )
  expect(run.stdout.trim(), run.stderr).toBe('1.2.3')
  expect(new Set(run.outcomes)).toEqual(new Set(['allow']))
})

describeWith('Python with requests', 'Python', () => {
  test.each(['python-urllib', 'python-requests'])('%s', async (name) => {
    const run = await inPrintedEnvironment(
      `${pythonInterpreter()} - <<'end'\n${exampleText(name, clients.allowed)}\nend`,
    )
    expect(run).toMatchObject({
      code: 0,
      stdout: `${GREETING.tls}\n\n${GREETING.plain}\n\n`,
      outcomes: ['allow', 'allow'],
    })
  })
})

describe('Node', () => {
  test.each(['node-fetch', 'node-http'])('%s', async (name) => {
    const run = await inPrintedEnvironment(
      `node --input-type=module <<'end'\n${exampleText(name, clients.allowed)}\nend`,
    )
    expect(run.stdout, run.stderr).toContain(GREETING.tls)
    expect(run.stdout).toContain(GREETING.plain)
    expect(run).toMatchObject({ code: 0, outcomes: ['allow', 'allow'] })
  })
})

describeWith('Java', 'Java', () => {
  test('Basic for CONNECT is enabled by JAVA_TOOL_OPTIONS; no token is printed', async () => {
    fs.writeFileSync(path.join(clients.folder, 'Fetch.java'), exampleText('Fetch', clients.allowed))
    const store = '-Djavax.net.ssl.trustStore=authorities.p12 -Djavax.net.ssl.trustStorePassword=changeit'
    const run = await inPrintedEnvironment(`
      JAVA_TOOL_OPTIONS= keytool -importcert -noprompt -alias test -file ${clients.caFile} -keystore authorities.p12 -storepass changeit >/dev/null 2>&1
      java ${store} Fetch.java ${urlOf(clients.allowed, 'https')} ${urlOf(clients.allowed, 'http')}`)
    expect(run.stdout, run.stderr).toBe(`200 - ${GREETING.tls}\n\n200 - ${GREETING.plain}\n\n`)
    expect(run.stderr).not.toContain(clients.token)
    expect(run.outcomes.filter((outcome) => outcome !== 'token_missing')).toEqual(['allow', 'allow'])
  })
})

test('the connection made for ssh', async () => {
  const { host, plainPort } = clients.allowed
  const run = await inPrintedEnvironment(
    `printf 'GET / HTTP/1.0\\r\\n\\r\\n' | bash --norc -c "$SALLYPORT_SSH_CONNECT" ${host} ${plainPort}`,
  )
  expect(run.stdout).toContain(GREETING.plain)
  expect(run.outcomes).toEqual(['allow'])
  const refused = await inPrintedEnvironment(
    `bash --norc -c "$SALLYPORT_SSH_CONNECT" ${clients.denied.host} ${clients.denied.plainPort} </dev/null`,
  )
  expect(refused).toMatchObject({ code: 1, outcomes: ['host_not_allowed'] })
  expect(refused.stderr).toContain('403 Host Not Allowed')
})
