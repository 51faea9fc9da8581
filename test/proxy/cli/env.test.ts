import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import net, { type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { clientVariables } from '../../../proxy/cli/client-environment.ts'
import { runBinary, runMain, temporaryFolder } from './run-cli.ts'

const folder = temporaryFolder()
afterAll(() => folder.close())

const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')
const TOKEN = `${encode({ alg: 'ES256' })}.${encode({ sub: 'sbx_42' })}.${'A'.repeat(86)}`
const TOKEN_FILE = join(folder.path, 'token')
writeFileSync(TOKEN_FILE, `${TOKEN}\n`)
const PROXY = 'http://127.0.0.1:3128'
const WITH_CREDENTIALS = `http://sbx_42:${TOKEN}@127.0.0.1:3128`

async function variables(...args: string[]): Promise<Record<string, string>> {
  const { stdout, code } = await runMain(['env', '--proxy', PROXY, '--json', ...args])
  expect(code).toBe(0)
  return (JSON.parse(stdout) as { variables: Record<string, string> }).variables
}

describe('the variables', () => {
  test('every client finds its own', async () => {
    const found = await variables('--token-file', TOKEN_FILE)
    for (const name of [
      'HTTP_PROXY',
      'HTTPS_PROXY',
      'ALL_PROXY',
      'http_proxy',
      'https_proxy',
      'all_proxy',
      'WS_PROXY',
      'WSS_PROXY',
      'FTP_PROXY',
      'GRPC_PROXY',
      'grpc_proxy',
      'GLOBAL_AGENT_HTTP_PROXY',
      'GLOBAL_AGENT_HTTPS_PROXY',
      'YARN_HTTP_PROXY',
      'YARN_HTTPS_PROXY',
      'npm_config_proxy',
      'npm_config_https_proxy',
      'DOCKER_HTTP_PROXY',
      'DOCKER_HTTPS_PROXY',
    ]) {
      expect(found[name], name).toBe(WITH_CREDENTIALS)
    }
    expect(found['NODE_USE_ENV_PROXY']).toBe('1')
    expect(found['RSYNC_PROXY']).toBe(`sbx_42:${TOKEN}@127.0.0.1:3128`)
    expect(found).toMatchObject({
      CLOUDSDK_PROXY_TYPE: 'http',
      CLOUDSDK_PROXY_ADDRESS: '127.0.0.1',
      CLOUDSDK_PROXY_PORT: '3128',
      CLOUDSDK_PROXY_USERNAME: 'sbx_42',
      CLOUDSDK_PROXY_PASSWORD: TOKEN,
    })
  })

  test('only this machine is reached directly', async () => {
    const found = await variables('--token-file', TOKEN_FILE)
    for (const name of ['NO_PROXY', 'no_proxy', 'npm_config_noproxy', 'GLOBAL_AGENT_NO_PROXY'])
      expect(found[name]).toBe('localhost,127.0.0.1,::1')
  })

  test('Java gets Basic for CONNECT, and no token, since the JVM prints the variable', async () => {
    const { JAVA_TOOL_OPTIONS: java = '' } = await variables('--token-file', TOKEN_FILE)
    expect(java).toContain('-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128')
    expect(java).toContain('-Djdk.http.auth.tunneling.disabledSchemes= ')
    expect(java).not.toContain(TOKEN)
  })

  test('a bound listener needs no credentials, and none are there', async () => {
    const found = await variables('--bound')
    expect(found['HTTPS_PROXY']).toBe('http://127.0.0.1:3128')
    for (const name of ['SALLYPORT_TOKEN', 'CLOUDSDK_PROXY_USERNAME', 'GIT_CONFIG_COUNT'])
      expect(found).not.toHaveProperty(name)
  })

  test('an IPv6 gateway is bracketed in URLs alone', () => {
    const found = clientVariables({ proxy: new URL('http://[::1]:3129'), token: undefined, user: 'x' })
    expect(found['HTTPS_PROXY']).toBe('http://[::1]:3129')
    expect(found['CLOUDSDK_PROXY_ADDRESS']).toBe('::1')
    expect(found['SALLYPORT_SSH_CONNECT']).toContain('/dev/tcp/::1/3129')
  })

  test('with TLS to the gateway, what would speak to it in the clear is left out, and said', async () => {
    const args = ['env', '--proxy', 'https://gw.example:3128', '--token', TOKEN, '--ca', '/etc/ca.pem']
    const { variables: found, notes } = JSON.parse((await runMain([...args, '--json'])).stdout) as {
      variables: Record<string, string>
      notes: string[]
    }
    const holders = Object.entries(found).filter(([name, value]) => name !== 'SALLYPORT_TOKEN' && value.includes(TOKEN))
    expect(holders.length).toBeGreaterThan(5)
    for (const [name, value] of holders) expect(value, name).toBe(`https://sbx_42:${TOKEN}@gw.example:3128`)
    for (const name of ['GIT_SSH_COMMAND', 'SALLYPORT_SSH_CONNECT', 'JAVA_TOOL_OPTIONS', 'CLOUDSDK_PROXY_TYPE'])
      expect(found).not.toHaveProperty(name)
    expect(found['GIT_PROXY_SSL_CAINFO']).toBe('/etc/ca.pem')
    expect(notes.join('\n')).toContain('nothing is set for Java, git over ssh, rsync and gcloud')
    expect(notes.join('\n')).not.toContain('JAVA_TOOL_OPTIONS')
  })

  test('an authority of its own is told to everybody', async () => {
    const found = await variables('--token-file', TOKEN_FILE, '--ca', '/etc/ca.pem')
    for (const name of [
      'SSL_CERT_FILE',
      'NODE_EXTRA_CA_CERTS',
      'REQUESTS_CA_BUNDLE',
      'CURL_CA_BUNDLE',
      'GIT_SSL_CAINFO',
      'PIP_CERT',
      'CARGO_HTTP_CAINFO',
      'AWS_CA_BUNDLE',
      'DENO_CERT',
      'npm_config_cafile',
    ]) {
      expect(found[name], name).toBe('/etc/ca.pem')
    }
  })
})

describe('where the token comes from', () => {
  test.each<[string, string[], { environment?: Record<string, string>; input?: string }]>([
    ['a file', ['--token-file', TOKEN_FILE], {}],
    ['standard input', ['--token-file', '-'], { input: `${TOKEN}\n` }],
    ['the environment', [], { environment: { SALLYPORT_TOKEN: TOKEN } }],
    ['a file that the environment names', [], { environment: { SALLYPORT_TOKEN_FILE: TOKEN_FILE } }],
    ['the command line', ['--token', TOKEN], {}],
  ])('%s', async (_name, args, surroundings) => {
    const { stdout } = await runMain(['env', '--proxy', PROXY, '--format', 'docker', ...args], surroundings)
    expect(stdout).toContain(`\nHTTPS_PROXY=${WITH_CREDENTIALS}\n`)
  })

  test.each([
    ['no token', [], 3, 'no token'],
    [
      'a file that is not there',
      ['--token-file', '/nowhere/token'],
      1,
      "can't read the token from `/nowhere/token` (no such file)",
    ],
    ['a token with a newline inside', ['--token', 'a\nb'], 3, 'no spaces'],
    ['a proxy that is no URL', ['--token', TOKEN, '--proxy', 'socks5://x'], 3, 'not the URL of a proxy'],
    ['a proxy with a password', ['--token', TOKEN, '--proxy', 'http://u:hunter2@h:1'], 3, 'must not hold credentials'],
  ])('%s is told in a line', async (_name, args, code, message) => {
    const outcome = await runMain(['env', ...args])
    expect(outcome).toMatchObject({ code, stdout: '' })
    expect(outcome.stderr).toContain(message)
    expect(outcome.stderr).not.toContain('hunter2')
    expect(outcome.stderr.split('\n')).toHaveLength(1)
  })
})

describe('the formats', () => {
  test('a shell that reads them has every variable as it is', async () => {
    const { stdout } = await runBinary(['env', '--proxy', PROXY, '--token-file', TOKEN_FILE], { cwd: folder.path })
    const expected = await variables('--token-file', TOKEN_FILE)
    const file = join(folder.path, 'env.sh')
    writeFileSync(file, stdout)
    const seen = execFileSync(
      '/bin/sh',
      ['-c', `. ${file}; exec ${process.execPath} -p 'JSON.stringify(process.env)'`],
      { env: { PATH: process.env['PATH'] } },
    )
    expect(JSON.parse(seen.toString())).toMatchObject(expected)
    expect(stdout).toMatch(/^# .*curl before 7\.65/m)
  })

  test('Docker has one line for each, without quotes', async () => {
    const { stdout } = await runMain([
      'env',
      '--proxy',
      PROXY,
      '--token-file',
      TOKEN_FILE,
      '--format',
      'docker',
      '--no-notes',
    ])
    const expected = await variables('--token-file', TOKEN_FILE)
    expect(stdout.split('\n')).toEqual(Object.entries(expected).map(([name, value]) => `${name}=${value}`))
  })

  test('dotenv quotes what needs it', async () => {
    const { stdout } = await runMain(['env', '--proxy', PROXY, '--bound', '--format', 'dotenv', '--no-notes'])
    expect(stdout).toContain(`\nNO_PROXY='localhost,127.0.0.1,::1'\n`)
    expect(stdout).toMatch(
      /^GIT_SSH_COMMAND="ssh -o ProxyCommand='bash --norc -c \\"\\\$SALLYPORT_SSH_CONNECT\\" %h %p'"$/m,
    )
  })
})

describe('git over ssh', () => {
  async function throughProxy(
    answer: string,
  ): Promise<{ head: string; sent: string; received: string; code: number; stderr: string }> {
    let head = ''
    let sent = ''
    const server = net.createServer((socket) => {
      socket.on('error', () => undefined)
      socket.on('data', (chunk) => {
        const whole = head + chunk.toString('latin1')
        if (head.includes('\r\n\r\n')) {
          sent += chunk.toString('latin1')
          socket.end('SSH-server-bytes')
        } else {
          head = whole
          if (!head.includes('\r\n\r\n')) return
          if (answer.startsWith('HTTP/1.1 200')) socket.write(answer)
          else socket.end(answer)
        }
      })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const { SALLYPORT_SSH_CONNECT, GIT_SSH_COMMAND = '' } = clientVariables({
      proxy: new URL(`http://127.0.0.1:${port}`),
      token: TOKEN,
      user: 'x',
    })
    // What ssh does with ProxyCommand: fill in host and port, and let a shell run it.
    const command = (/ProxyCommand='(?<command>.*)'$/.exec(GIT_SSH_COMMAND)?.groups?.['command'] ?? '')
      .replace('%h', 'git.example')
      .replace('%p', '22')
    const child = spawn('/bin/sh', ['-c', `exec ${command}`], {
      env: { PATH: process.env['PATH'], SALLYPORT_SSH_CONNECT, SALLYPORT_TOKEN: TOKEN },
    })
    let received = ''
    let stderr = ''
    child.stdout.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')))
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    child.stdin.on('error', () => undefined)
    child.stdin.write('SSH-client-bytes')
    const [code] = (await once(child, 'close')) as [number]
    server.close()
    return { head, sent, received, code, stderr }
  }

  test('opens a tunnel with the token, and loses no byte behind the head', async () => {
    const { head, sent, received } = await throughProxy(
      'HTTP/1.1 200 Connection Established\r\nx: y\r\n\r\nSSH-banner;',
    )
    expect(head).toBe(
      `CONNECT git.example:22 HTTP/1.1\r\nHost: git.example:22\r\nProxy-Authorization: Bearer ${TOKEN}\r\n\r\n`,
    )
    expect(sent).toBe('SSH-client-bytes')
    expect(received).toBe('SSH-banner;SSH-server-bytes')
  })

  test('says why it was refused', async () => {
    const { code, stderr, received } = await throughProxy('HTTP/1.1 403 Host Not Allowed\r\n\r\n')
    expect(code).toBe(1)
    expect(stderr).toContain('sallyport: HTTP/1.1 403 Host Not Allowed')
    expect(received).toBe('')
  })
})
