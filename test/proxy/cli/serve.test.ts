import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import net, { type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { runBinary, startBinary, temporaryFolder, type Serving } from './run-cli.ts'

const ON_FREE_PORTS = { SALLYPORT_LISTEN_PROXY: '127.0.0.1:0', SALLYPORT_LISTEN_ADMIN: '127.0.0.1:0' }

/** Runs a printed line as a newcomer would: in a shell, as it is. */
async function paste(line: string): Promise<string> {
  return new Promise((resolve) => {
    execFile('/bin/sh', ['-c', line], (_error, stdout, stderr) => resolve(`${stdout}${stderr}`))
  })
}

describe('the development set-up', () => {
  const folder = temporaryFolder()
  let serving: Serving
  let lines: readonly string[] = []
  const at = (...path: string[]): string => join(folder.path, '.sallyport', ...path)

  beforeAll(async () => {
    serving = startBinary(['serve'], { cwd: folder.path, environment: ON_FREE_PORTS })
    await serving.until('stdout', /Ctrl-C stops/)
    lines = serving
      .stdout()
      .split('\n')
      .filter((line) => line.startsWith('  curl '))
  })
  afterAll(async () => {
    serving.kill('SIGKILL')
    await serving.ended
    folder.close()
  })

  test('two lines are printed: one is let out without internet, one is refused with the reason', async () => {
    expect(lines).toHaveLength(2)
    expect(await paste(lines[0] ?? '')).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*This is demo\.sallyport\.test/m)
    const refused = await paste(lines[1] ?? '')
    expect(refused).toMatch(/^HTTP\/1\.1 403 Host Not Allowed\r\n/m)
    expect(refused).toContain('x-deny-reason: host_not_allowed')
  })

  test('both are in the audit log, which the command line reads and verifies', async () => {
    const { stdout } = await runBinary(['audit', 'query', '--kind', 'decision'], { cwd: folder.path })
    expect(stdout).toMatch(/allowed.* demo\.sallyport\.test:\d+ {2}for dev/)
    expect(stdout).toMatch(/REFUSED {2}host_not_allowed at ceiling {2}other\.sallyport\.test:\d+ {2}for dev/)
    const verified = await runBinary(['audit', 'verify', '--json'], { cwd: folder.path })
    expect(JSON.parse(verified.stdout)).toMatchObject({ ok: true, signatures: 'checked' })
    expect(verified.code).toBe(0)
  })

  test('one line in the file and a SIGHUP let the refused one out', async () => {
    const host = /http:\/\/(?<host>other\.sallyport\.test:\d+)\/$/.exec(lines[1] ?? '')?.groups?.['host'] ?? ''
    const config = readFileSync(at('sallyport.yaml'), 'utf8')
    writeFileSync(at('sallyport.yaml'), config.replace('      - example.com', `      - example.com\n      - ${host}`))
    process.kill(Number(readFileSync(at('gateway.pid'), 'utf8')), 'SIGHUP')
    await serving.until('stderr', /configuration reloaded/)
    expect(await paste(lines[1] ?? '')).toContain('This is other.sallyport.test')
  })

  test('a file that is wrong changes nothing, and the log says what is wrong', async () => {
    const config = readFileSync(at('sallyport.yaml'), 'utf8')
    writeFileSync(at('sallyport.yaml'), `${config}limts: {}\n`)
    serving.kill('SIGHUP')
    await serving.until('stderr', /last good one stays in force/)
    expect(serving.stderr()).toContain('limts: unknown key; did you mean `limits`?')
    expect(await paste(lines[1] ?? '')).toContain('This is other.sallyport.test')
    writeFileSync(at('sallyport.yaml'), config)
  })

  test('the environment that the command line prints leads curl through', async () => {
    const port = /@(127\.0\.0\.1:\d+)"/.exec(lines[0] ?? '')?.[1] ?? ''
    const { stdout } = await runBinary(['env', '--proxy', `http://${port}`, '--token-file', at('token')], {
      cwd: folder.path,
    })
    const url = /http:\/\/demo\S+$/.exec(lines[0] ?? '')?.[0] ?? ''
    expect(await paste(`${stdout}\ncurl -sS ${url}`)).toContain('This is demo.sallyport.test')
  })

  test('what it keeps is for this user alone', () => {
    for (const path of [at(), at('sallyport.yaml'), at('token'), at('keys')])
      expect(statSync(path).mode & 0o077, path).toBe(0)
  })

  test('a second gateway in the same folder says so in one line', async () => {
    const { code, stdout, stderr } = await runBinary(['serve'], { cwd: folder.path, environment: ON_FREE_PORTS })
    expect(code).toBe(1)
    expect(stdout).toBe('')
    expect(
      stderr
        .trim()
        .split('\n')
        .filter((line) => !line.startsWith('{')),
    ).toHaveLength(1)
    expect(existsSync(at('gateway.pid'))).toBe(true)
  })

  test('without a listener of its own there is nothing to serve', async () => {
    const { code, stderr } = await runBinary(['serve'], {
      cwd: folder.path,
      environment: { ...ON_FREE_PORTS, SALLYPORT_LISTEN_PROXY: 'off' },
    })
    expect({ code, stderr }).toEqual({
      code: 3,
      stderr: expect.stringContaining('`off` leaves no client a way in') as string,
    })
  })

  test('a revoked token is refused within a second', async () => {
    const id =
      /"jti":"(?<id>[^"]+)"/.exec(
        Buffer.from(readFileSync(at('token'), 'utf8').split('.')[1] ?? '', 'base64url').toString(),
      )?.groups?.['id'] ?? ''
    await runBinary(['token', 'revoke', id], { cwd: folder.path })
    const started = Date.now()
    let answer = await paste(lines[0] ?? '')
    while (!answer.includes('token_revoked') && Date.now() - started < 5_000) answer = await paste(lines[0] ?? '')
    expect(answer).toMatch(/HTTP\/1\.1 407 Token Revoked/)
  })

  test('no token is in the log of the gateway, nor on its output', () => {
    const token = readFileSync(at('token'), 'utf8').trim()
    expect(serving.stderr()).not.toContain(token)
    expect(serving.stdout()).not.toContain(token)
  })

  test('SIGTERM ends it in order, and the next start finds everything', async () => {
    serving.kill('SIGTERM')
    expect(await serving.ended).toBe(0)
    expect(existsSync(at('gateway.pid'))).toBe(false)
    const again = startBinary(['serve'], { cwd: folder.path, environment: ON_FREE_PORTS })
    await again.until('stdout', /Ctrl-C stops/)
    const [line = ''] = again
      .stdout()
      .split('\n')
      .filter((text) => text.startsWith('  curl '))
    expect(await paste(line)).toContain('This is demo.sallyport.test')
    again.kill('SIGINT')
    expect(await again.ended).toBe(0)
    const { stdout } = await runBinary(['audit', 'verify', '--json'], { cwd: folder.path })
    const [instance] = (JSON.parse(stdout) as { instances: { runs: { end: string }[] }[] }).instances
    expect(instance?.runs.map(({ end }) => end)).toEqual(['stop', 'stop'])
  })
})

test('the lines hold also where the folder has a name that a shell would read otherwise', async () => {
  const folder = temporaryFolder()
  const cwd = join(folder.path, `it's "$(touch made)" & more`)
  mkdirSync(cwd)
  const serving = startBinary(['serve'], { cwd, environment: ON_FREE_PORTS })
  try {
    await serving.until('stdout', /Ctrl-C stops/)
    const lines = serving
      .stdout()
      .split('\n')
      .filter((line) => line.startsWith('  curl '))
    expect(await paste(`cd '${folder.path}'; ${lines[0] ?? ''}`)).toContain('This is demo.sallyport.test')
    expect(existsSync(join(folder.path, 'made'))).toBe(false)
  } finally {
    serving.kill('SIGTERM')
    await serving.ended
    folder.close()
  }
})

describe('a gateway that can not start says why in one line', () => {
  const undo: (() => void)[] = []
  afterEach(() => {
    for (const step of undo.splice(0).toReversed()) step()
  })

  function newFolder(): string {
    const folder = temporaryFolder()
    undo.push(folder.close)
    return folder.path
  }

  async function serve(
    config: string,
    prepare: (folder: string) => void = () => undefined,
  ): Promise<{ code: number | null; lines: readonly string[] }> {
    const cwd = newFolder()
    writeFileSync(join(cwd, 'sallyport.yaml'), config)
    prepare(cwd)
    const { code, stdout, stderr } = await runBinary(['serve', '--config', 'sallyport.yaml'], { cwd })
    expect(stdout).toBe('')
    return {
      code,
      lines: stderr
        .trim()
        .split('\n')
        .filter((line) => !line.startsWith('{')),
    }
  }

  const FREE = 'listen: { proxy: 127.0.0.1:0, admin: off }\n'

  test('a port in use', async () => {
    const server = net.createServer()
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    undo.push(() => server.close())
    const { port } = server.address() as AddressInfo
    const { code, lines } = await serve(`listen: { proxy: 127.0.0.1:${port}, admin: off }`)
    expect(code).toBe(1)
    expect(lines).toEqual([expect.stringMatching(new RegExp(`^sallyport: .*${port}.* in use`))])
  })

  test('a port of the development set-up in use: how to choose another', async () => {
    const server = net.createServer()
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    undo.push(() => server.close())
    const { port } = server.address() as AddressInfo
    const { code, stderr } = await runBinary(['serve'], {
      cwd: newFolder(),
      environment: { SALLYPORT_LISTEN_PROXY: `127.0.0.1:${port}`, SALLYPORT_LISTEN_ADMIN: '127.0.0.1:0' },
    })
    expect(code).toBe(1)
    expect(stderr).toMatch(/ in use; other ports: SALLYPORT_LISTEN_PROXY=\S+ SALLYPORT_LISTEN_ADMIN=\S+\n$/)
  })

  test('a key file that can not be read', async () => {
    const { code, lines } = await serve(`${FREE}issuers: [{ issuer: a, algorithms: [ES256], jwks: nowhere.json }]`)
    expect(code).toBe(1)
    expect(lines).toEqual([expect.stringMatching(/^sallyport: .*nowhere\.json.* can't be read \(no such file\)$/)])
  })

  test.skipIf(process.geteuid?.() !== 0)(
    'a state folder of somebody else (skipped unless run as root, who alone can make one)',
    async () => {
      const { code, lines } = await serve(`${FREE}state: theirs`, (folder) => {
        mkdirSync(join(folder, 'theirs'))
        chownSync(join(folder, 'theirs'), 12_345, 12_345)
      })
      expect(code).toBe(1)
      expect(lines).toEqual([expect.stringMatching(/^sallyport: state .*theirs.* belongs to user 12345/)])
    },
  )

  test('a state folder that others may write', async () => {
    const { code, lines } = await serve(`${FREE}state: open`, (folder) => {
      mkdirSync(join(folder, 'open'))
      chmodSync(join(folder, 'open'), 0o777)
    })
    expect(code).toBe(1)
    expect(lines).toEqual([expect.stringMatching(/^sallyport: state .*open.* can be written by other users/)])
  })

  test('a configuration with faults: all of them, exit code 3', async () => {
    const { code, lines } = await serve('listn: {}\nlimits: { tunnels: 0 }\n')
    expect(code).toBe(3)
    expect(lines).toEqual([
      'sallyport.yaml:2:11: limits.tunnels: must be at least 1',
      'sallyport.yaml:1:1: listn: unknown key; did you mean `listen`?',
    ])
  })
})
