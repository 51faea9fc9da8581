import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { runBinary, runMain, temporaryFolder, type Outcome } from './run-cli.ts'

const folder = temporaryFolder()
afterAll(() => folder.close())
const CONFIG = join(folder.path, 'sallyport.yaml')
const SECRET = join(folder.path, 'secret')
writeFileSync(SECRET, `${'s'.repeat(32)}\n`)
writeFileSync(
  CONFIG,
  `
issuers:
  - { issuer: own, algorithms: [EdDSA], stateKeys: true, audience: [gate] }
  - { issuer: shared, algorithms: [HS256], secretFile: secret }
policy: { ceiling: { kind: allow-all }, named: { base: { kind: allow-all } }, sets: { corp: [wiki.corp.example] } }
`,
)

const sallyport = (...args: string[]): Promise<Outcome> => runMain([...args, '--config', CONFIG])

interface Inspected {
  readonly header: Record<string, unknown>
  readonly claims: Record<string, unknown>
  readonly verification: Record<string, unknown>
}

async function inspect(token: string): Promise<Inspected> {
  const { stdout } = await runMain(['token', 'inspect', '--config', CONFIG, '--json'], {
    environment: { SALLYPORT_TOKEN: token },
  })
  return JSON.parse(stdout) as Inspected
}

test('keys are made, listed, rotated and removed; each step shows in what verifies', async () => {
  expect(await sallyport('token', 'mint')).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('`sallyport keys generate` makes one') as string,
  })
  const first = JSON.parse((await sallyport('keys', 'generate', '--json')).stdout) as { kid: string }
  expect(first).toMatchObject({ algorithm: 'EdDSA', signs: true })
  expect(await sallyport('keys', 'generate')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('keys rotate') as string,
  })

  const old = (await sallyport('token', 'mint')).stdout
  const second = JSON.parse((await sallyport('keys', 'rotate', '--json')).stdout) as { kid: string }
  expect(JSON.parse((await sallyport('keys', 'list', '--json')).stdout)).toMatchObject([
    { kid: second.kid, signs: true },
    { kid: first.kid, signs: false },
  ])
  expect((await inspect(old)).verification).toEqual({ result: 'verified' })
  const fresh = (await sallyport('token', 'mint')).stdout
  expect((await inspect(fresh)).header['kid']).toBe(second.kid)

  expect(await sallyport('keys', 'remove', first.kid)).toMatchObject({ code: 0, stderr: '' })
  expect((await inspect(old)).verification).toMatchObject({ result: 'refused', reason: 'token_signature_invalid' })
  expect((await inspect(fresh)).verification).toEqual({ result: 'verified' })
  expect(await sallyport('keys', 'remove', '../../etc/passwd')).toMatchObject({ code: 1 })
  expect(await sallyport('keys', 'remove', second.kid)).toMatchObject({
    code: 0,
    stderr: expect.stringMatching(/^it was the key that signs: .*`sallyport keys rotate`/) as string,
  })
  expect((await sallyport('token', 'mint')).code).toBe(1)
  expect((await sallyport('keys', 'generate')).code).toBe(0)
})

describe('token mint', () => {
  test('everything asked for is in the token', async () => {
    const { stdout } = await sallyport(
      'token',
      'mint',
      '--sandbox',
      'sbx_1',
      '--tenant',
      'acme',
      '--allow',
      'API.example.com',
      '--allow',
      '@corp',
      '--deny',
      'x.example.com',
      '--ttl',
      '15m',
      '--bind-ip',
      '10.0.0.9',
      '--json',
    )
    const minted = JSON.parse(stdout) as { token: string; tokenId: string; expiresAt: string }
    const { claims, verification } = await inspect(minted.token)
    expect(claims).toMatchObject({
      iss: 'own',
      aud: 'gate',
      sub: 'sbx_1',
      tenant: 'acme',
      jti: minted.tokenId,
      cnf: { ip: '10.0.0.9' },
    })
    expect(claims['egress']).toMatchObject({ kind: 'static', deniedHosts: ['x.example.com'] })
    expect(Number(claims['exp']) - Number(claims['iat'])).toBe(900)
    expect(verification).toMatchObject({ result: 'refused', reason: 'token_binding_mismatch' })
  })

  test('without any entry it asks for nothing, and says so', async () => {
    const { stdout, stderr } = await sallyport('token', 'mint')
    expect((await inspect(stdout)).claims).not.toHaveProperty('egress')
    expect(stderr).toMatch(/^note: this token allows nothing/)
    expect((await sallyport('token', 'mint', '--deny', 'x.example.com')).stderr).toMatch(/allows nothing/)
    expect((await sallyport('token', 'mint', '--allow', 'x.example.com')).stderr).toBe('')
  })

  test('a shared secret signs too', async () => {
    const { stdout } = await sallyport('token', 'mint', '--issuer', 'shared', '--policy', 'base')
    expect(await inspect(stdout)).toMatchObject({
      header: { alg: 'HS256' },
      claims: { egress: { kind: 'named', name: 'base' } },
      verification: { result: 'verified' },
    })
  })

  test('a handle is made beside it, and stands for it', async () => {
    const [token = '', handle = ''] = (await sallyport('token', 'mint', '--handle')).stdout.split('\n')
    expect(token.split('.')).toHaveLength(3)
    expect(handle).toMatch(/^sph_[A-Za-z0-9_-]{32}$/)
    const outcome = await runMain(['token', 'inspect', '--config', CONFIG, '--token', handle])
    expect(outcome).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^VERIFIED[^]*A handle that stands for/) as string,
    })
    const [plain, behind] = [await inspect(token), await inspect(handle)]
    expect(behind).toEqual({ ...plain, handle: true })
    const stranger = await inspect(`sph_${'A'.repeat(32)}`)
    expect(stranger).toMatchObject({ handle: true, verification: { result: 'refused' } })
    expect(stranger).not.toHaveProperty('claims')
  })

  test.each([
    ['an entry that is none', ['--allow', '*.com'], 'is refused'],
    ['two kinds of policy', ['--allow', 'a.example', '--allow-all'], 'exclude each other'],
    ['a life beyond a day', ['--ttl', '25h'], 'at most 24h'],
    ['a life that is none', ['--ttl', 'soon'], '`--ttl`'],
    ['an issuer that is not there', ['--issuer', 'nobody'], 'no issuer `nobody`; it has `own`, `shared`'],
    ['an empty sandbox', ['--sandbox', ''], '`sandbox` has 1 to 512 characters'],
    ['an address that is none', ['--bind-ip', 'here'], 'the address of a binding is none'],
  ])('%s is wrong usage', async (_name, args, message) => {
    const outcome = await sallyport('token', 'mint', ...args)
    expect(outcome).toMatchObject({ code: 3, stdout: '' })
    expect(outcome.stderr).toContain(message)
  })

  test('a key file that is not there is one line, exit code 1', async () => {
    expect(await sallyport('token', 'mint', '--issuer', 'own', '--key', '/nowhere/key.pem')).toEqual({
      code: 1,
      stdout: '',
      stderr: "sallyport: key `/nowhere/key.pem` can't be read (no such file)",
    })
  })
})

describe('token inspect', () => {
  test('says that nothing was verified where there are no keys to verify with', async () => {
    const token = (await sallyport('token', 'mint', '--sandbox', 'sbx_9')).stdout
    const outcome = await runBinary(['token', 'inspect', '--token-file', '-'], { cwd: folder.path, input: token })
    expect(outcome.code).toBe(0)
    expect(outcome.stdout).toMatch(/^NOT VERIFIED, nothing of it: without a configuration/)
    expect(outcome.stdout).toContain('sbx_9')
    expect(outcome.stdout).not.toContain(token.split('.')[2])
  })

  test('a forged token is refused, and what it says is called the word of its maker', async () => {
    const token = (await sallyport('token', 'mint')).stdout
    const [head = '', , signature = ''] = token.split('.')
    const forged = `${head}.${Buffer.from(JSON.stringify({ iss: 'own', sub: 'root' })).toString('base64url')}.${signature}`
    const outcome = await runMain(['token', 'inspect', '--config', CONFIG, '--token', forged])
    expect(outcome.code).toBe(2)
    expect(outcome.stdout).toMatch(/^REFUSED: token_[a-z_]+.*the word of whoever made the token/)
  })

  test('a token that is bound to a certificate is judged with the one that is named', async () => {
    const thumbprint = 'a'.repeat(42) + 'A'
    const token = (await sallyport('token', 'mint', '--bind-certificate', thumbprint)).stdout
    const inspect = (...more: string[]) => runMain(['token', 'inspect', '--config', CONFIG, '--token', token, ...more])
    expect((await inspect()).stdout).toMatch(/^REFUSED: token_binding_mismatch/)
    expect(await inspect('--client-certificate', thumbprint)).toMatchObject({ code: 0 })
    expect((await inspect('--client-certificate', `b${thumbprint.slice(1)}`)).code).toBe(2)
  })

  test('a file of two lines, as `token mint --handle` prints them, is neither', async () => {
    const both = (await sallyport('token', 'mint', '--handle')).stdout
    const outcome = await runMain(['token', 'inspect', '--token-file', '-'], { input: both })
    expect(outcome).toMatchObject({ code: 1, stdout: '' })
    expect(outcome.stderr).toContain('`standard input` holds several lines')
  })

  test('what is no token is said without repeating it', async () => {
    const outcome = await runMain(['token', 'inspect', '--no-verify', '--token', 'marker-of-a-secret'])
    expect(outcome).toMatchObject({ code: 2, stdout: '' })
    expect(outcome.stderr).not.toContain('marker-of-a-secret')
  })
})

describe('token revoke', () => {
  test.each<[string, (token: { tokenId: string }) => string[]]>([
    ['its id', ({ tokenId }) => [tokenId]],
    ['its sandbox', () => ['--sandbox', 'sbx_revoked']],
    ['its tenant', () => ['--tenant', 'revoked']],
  ])('a token is revoked by %s', async (_name, args) => {
    const minted = JSON.parse(
      (await sallyport('token', 'mint', '--sandbox', 'sbx_revoked', '--tenant', 'revoked', '--json', '--ttl', '1h'))
        .stdout,
    ) as { token: string; tokenId: string }
    expect(await sallyport('token', 'revoke', ...args(minted))).toMatchObject({ code: 0, stderr: '' })
    expect((await inspect(minted.token)).verification).toMatchObject({ result: 'refused', reason: 'token_revoked' })
  })

  test('older tokens alone are revoked when that is asked for', async () => {
    const { stdout: token } = await sallyport('token', 'mint', '--sandbox', 'sbx_new')
    await sallyport('token', 'revoke', '--sandbox', 'sbx_new', '--issued-before', '10m')
    expect((await inspect(token)).verification).toEqual({ result: 'verified' })
  })

  test.each([
    ['nothing', [], 'name exactly one'],
    ['two things', ['x', '--tenant', 'y'], 'name exactly one'],
    ['a whole token', ['eyJhbGciOi.eyJpc3Mi.AAAA'], 'this is a whole token'],
    ['a time that is none', ['--tenant', 'y', '--issued-before', 'monday'], 'neither a time'],
  ])('%s is wrong usage', async (_name, args, message) => {
    const outcome = await sallyport('token', 'revoke', ...args)
    expect(outcome.code).toBe(3)
    expect(outcome.stderr).toContain(message)
  })
})

test('no private key is printed by any of it', async () => {
  const secret = readFileSync(SECRET, 'utf8').trim()
  for (const args of [
    ['keys', 'list', '--json'],
    ['keys', 'rotate', '--json'],
    ['keys', 'list'],
  ]) {
    const { stdout, stderr } = await sallyport(...args)
    expect(stdout + stderr).not.toMatch(/"d"|PRIVATE/)
    expect(stdout + stderr).not.toContain(secret)
  }
})
