/** git against a real repository behind `git http-backend`: clone, fetch and push, over TLS and in plain. */
import { spawnSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { example } from './documented.ts'
import { type Clients, startClients, urlOf } from './fixture.ts'
import { gitBackend } from './git-origin.ts'
import { describeWith } from './installed.ts'

describeWith('git', 'git', () => {
  let clients: Clients
  let work: string
  let count = 0
  const folderOf = () => path.join(work, `clone-${count++}`)

  beforeAll(async () => {
    work = fs.mkdtempSync(path.join(fs.realpathSync('/tmp'), 'sallyport-git-'))
    makeRepository(work)
    clients = await startClients({ onRequest: gitBackend(path.join(work, 'served')) })
  })
  afterAll(async () => {
    await clients.close()
    fs.rmSync(work, { recursive: true, force: true })
  })

  test('clone: asks without credentials, is challenged, and goes on over the same connection', async () => {
    const cwd = folderOf()
    fs.mkdirSync(cwd)
    const run = await clients.run({ ...example('git-clone', clients.allowed, clients.proxyVariables), cwd })
    expect(run.code, run.stderr).toBe(0)
    expect(run).toMatchObject({
      outcomes: ['token_missing', 'allow'],
      connections: 1,
      dialects: ['connect', 'connect'],
    })
    expect(fs.readFileSync(path.join(cwd, 'project/README'), 'utf8')).toBe('a project\n')
    expect(fs.statSync(path.join(cwd, 'project/large')).size).toBe(1_500_000)
  })

  test('http.proxyAuthMethod=basic sends the credentials at once', async () => {
    const cwd = folderOf()
    fs.mkdirSync(cwd)
    const run = await clients.run({ ...example('git-basic', clients.allowed, clients.proxyVariables), cwd })
    expect(run).toMatchObject({ code: 0, outcomes: ['allow'], connections: 1 })
  })

  test('http.proxy of the configuration, with credentials in it', async () => {
    const argv = [
      'git',
      '-c',
      `http.proxy=${clients.loginUrl}`,
      'ls-remote',
      `${urlOf(clients.allowed, 'https')}project.git`,
    ] as const
    const run = await clients.run({ argv: [...argv] })
    expect(run).toMatchObject({ code: 0, outcomes: ['token_missing', 'allow'] })
    expect(run.stdout).toContain('refs/heads/main')
  })

  test('clone in plain HTTP: every request is decided', async () => {
    const folder = folderOf()
    const argv = ['git', 'clone', '-q', `${urlOf(clients.allowed, 'http')}project.git`, folder] as const
    const run = await clients.run({ argv: [...argv], env: clients.proxyVariables })
    expect(run.code, run.stderr).toBe(0)
    expect(run.outcomes[0]).toBe('token_missing')
    expect(run.outcomes.filter((outcome) => outcome === 'allow').length).toBeGreaterThanOrEqual(2)
    expect(fs.statSync(path.join(folder, 'large')).size).toBe(1_500_000)
  })

  test.each(['https', 'http'] as const)('push over %s: a chunked body of 1.5 MB goes up', async (scheme) => {
    const folder = folderOf()
    const url = `${urlOf(clients.allowed, scheme)}project.git`
    const blob = crypto.randomBytes(1_500_000)
    const run = await clients.run({
      argv: [
        'sh',
        '-euc',
        `git clone -q ${url} ${folder}; cd ${folder}; cat ${work}/blob > pushed; git add pushed; git commit -qm more; git push -q origin HEAD:refs/heads/by-${scheme}`,
      ],
      env: { ...clients.proxyVariables, ...authors, ...(fs.writeFileSync(path.join(work, 'blob'), blob), {}) },
    })
    expect(run.code, run.stderr).toBe(0)
    const pushed = spawnSync('git', ['show', `by-${scheme}:pushed`], {
      cwd: path.join(work, 'served/project.git'),
      maxBuffer: 10_000_000,
    })
    expect(pushed.stdout.equals(blob)).toBe(true)
  })

  test('a refusal: the status, and with GIT_CURL_VERBOSE the reason', async () => {
    const argv = ['git', 'ls-remote', `${urlOf(clients.denied, 'https')}project.git`] as const
    const run = await clients.run({ argv: [...argv], env: clients.proxyVariables })
    expect(run).toMatchObject({ code: 128, outcomes: ['token_missing', 'host_not_allowed'] })
    expect(run.stderr).toContain('CONNECT tunnel failed, response 403')
    const verbose = await clients.run({ argv: [...argv], env: { ...clients.proxyVariables, GIT_CURL_VERBOSE: '1' } })
    expect(verbose.stderr).toContain('x-deny-reason: host_not_allowed')
  })

  test('a percent sign in the password does not survive git, a token does not need one', async () => {
    const proxy = (password: string) => clients.proxyUrl.replace('://', `://sandbox:${password}@`)
    const argv = (password: string) =>
      [
        'git',
        '-c',
        `http.proxy=${proxy(password)}`,
        'ls-remote',
        `${urlOf(clients.allowed, 'https')}project.git`,
      ] as const
    expect(clients.token).toMatch(/^[A-Za-z0-9._-]+$/)
    const once = await clients.run({ argv: [...argv(clients.token.replace('.', '%2E'))] })
    expect(once.outcomes).toEqual(['token_missing', 'allow'])
    const twice = await clients.run({ argv: [...argv(clients.token.replace('.', '%252E'))] })
    expect(twice.outcomes).toEqual(['token_missing', 'allow'])
  })
})

describeWith('git', 'git, with TLS to the gateway', () => {
  test('the authority of the gateway has a variable of its own', async () => {
    const clients = await startClients({ tlsToProxy: true })
    try {
      const argv: readonly [string, ...string[]] = ['git', 'ls-remote', `${urlOf(clients.allowed, 'http')}none.git`]
      const run = await clients.run({ argv, env: { ...clients.proxyVariables, GIT_PROXY_SSL_CAINFO: clients.caFile } })
      expect(run.outcomes).toEqual(['token_missing', 'allow'])
      const without = await clients.run({ argv, env: clients.proxyVariables })
      expect(without.outcomes).toEqual([])
      expect(without.stderr).toContain('certificate')
    } finally {
      await clients.close()
    }
  })
})

const authors = {
  GIT_AUTHOR_NAME: 'a',
  GIT_AUTHOR_EMAIL: 'a@example.test',
  GIT_COMMITTER_NAME: 'a',
  GIT_COMMITTER_EMAIL: 'a@example.test',
}

/** `served/project.git`, a bare repository with one commit of a small file and one that no packing makes small. */
function makeRepository(folder: string): void {
  fs.writeFileSync(path.join(folder, 'large'), crypto.randomBytes(1_500_000))
  const script = `
    git init -q -b main source; cd source; echo 'a project' > README; mv ../large .; git add .; git commit -qm first; cd ..
    git clone -q --bare source served/project.git; git -C served/project.git config http.receivepack true`
  const made = spawnSync('sh', ['-euc', script], {
    cwd: folder,
    env: { PATH: process.env['PATH'], HOME: folder, ...authors },
    encoding: 'utf8',
  })
  if (made.status !== 0) throw new Error(made.stderr)
}
