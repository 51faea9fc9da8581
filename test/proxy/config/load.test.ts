import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ConfigError, loadConfig } from '../../../proxy/config/load.ts'

let folder = ''
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sallyport-config-'))
})
afterEach(() => rm(folder, { recursive: true }))

async function faultsOf(text: string | Buffer): Promise<string[]> {
  const file = join(folder, 'sallyport.yaml')
  await writeFile(file, text)
  const error: unknown = await loadConfig({ file }).then(
    () => undefined,
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(ConfigError)
  return (error as ConfigError).message.replaceAll(`${folder}/`, '').split('\n')
}

describe('reading the file', () => {
  test('YAML with its paths beside the file', async () => {
    const file = join(folder, 'sallyport.yaml')
    await writeFile(
      file,
      '$schema: ./schemas/config.schema.json\nstate: state\npolicy:\n  ceiling: { kind: allow-all }\n',
    )
    const config = await loadConfig({ file, environment: { SALLYPORT_LIMITS_TUNNELS: '5' } })
    expect(config.state).toBe(join(folder, 'state'))
    expect(config.policy.ceiling.kind).toBe('allow-all')
    expect(config.limits.tunnels).toBe(5)
  })

  test('JSON is YAML', async () => {
    const file = join(folder, 'sallyport.json')
    await writeFile(file, JSON.stringify({ limits: { tunnels: 7 } }))
    expect((await loadConfig({ file })).limits.tunnels).toBe(7)
  })

  test('without a file the defaults and the environment count, from the working directory', async () => {
    const config = await loadConfig({ environment: { SALLYPORT_STATE: 'here' } })
    expect(config.state).toBe(join(process.cwd(), 'here'))
  })

  test('every fault has its line: of the key, or of the section where something is missing', async () => {
    expect(
      await faultsOf(
        [
          'listn: {}',
          'limits:',
          '  tunnels: many',
          'issuers:',
          '  - issuer: a',
          '    algorithms: [ES257]',
          '    jwks: f',
          'policy:',
          '  tenants:',
          '    "a b": {}',
        ].join('\n'),
      ),
    ).toEqual([
      'sallyport.yaml:6:18: issuers[0].algorithms[0]: expected one of `EdDSA`, `ES256`, `RS256`, `PS256`, `HS256`; found `ES257`; did you mean `ES256`?',
      'sallyport.yaml:10:5: policy.tenants["a b"].kind: is required: one of `deny-all`, `allow-all`, `static`, `named`',
      'sallyport.yaml:3:3: limits.tunnels: expected a number, found `many`',
      'sallyport.yaml:1:1: listn: unknown key; did you mean `listen`?',
    ])
  })

  test('what is not YAML is told in one short line, whatever is in it', async () => {
    for (const text of [`{]}${'\0'.repeat(4096)}`, '{]}\u001b[2J']) {
      const [fault = ''] = await faultsOf(text)
      expect(fault).toMatch(/^sallyport\.yaml:1:\d+: is not YAML: [\x20-\x7e]+$/)
      expect(fault.length).toBeLessThan(2_000)
    }
  })

  test('what is not YAML says where', async () => {
    expect((await faultsOf('listen: [\n'))[0]).toMatch(/^sallyport\.yaml:\d+:\d+: is not YAML: /)
    expect((await faultsOf('state: a\nstate: b\n'))[0]).toBe('sallyport.yaml:2:1: is not YAML: map keys must be unique')
  })

  test('a star or an at sign without quotes says that it wants them', async () => {
    expect(await faultsOf('policy:\n  deniedHosts: [*.example.com, *.example.net:443]\n')).toEqual([
      "sallyport.yaml:2:17: `*.example.com` without quotes is an alias in YAML; write `'*.example.com'`",
      "sallyport.yaml:2:32: `*.example.net:443` without quotes is an alias in YAML; write `'*.example.net:443'`",
    ])
    expect((await faultsOf('policy: { deniedHosts: [*] }\n'))[0]).toMatch(/^sallyport\.yaml:1:\d+: .*in quotes$/)
    expect((await faultsOf('policy: { deniedHosts: [@github] }\n'))[0]).toMatch(/^sallyport\.yaml:1:\d+: .*in quotes$/)
  })

  test('a file that is not there, or a folder, is one line', async () => {
    await expect(loadConfig({ file: join(folder, 'no.yaml') })).rejects.toThrow(
      /no\.yaml: can not be read: no such file$/,
    )
    await expect(loadConfig({ file: folder })).rejects.toThrow(/can not be read: it is a folder$/)
  })

  test('a file of aliases that would grow without bound is refused', async () => {
    const lines = [
      'a0: &a0 [x, x]',
      ...Array.from({ length: 30 }, (_item, index) => `a${index + 1}: &a${index + 1} [*a${index}, *a${index}]`),
    ]
    expect((await faultsOf(lines.join('\n')))[0]).toBe('sallyport.yaml: holds too many aliases')
  })

  test('a huge file is not read', async () => {
    expect(await faultsOf(Buffer.alloc(9 * 1024 * 1024, 35))).toEqual([
      'sallyport.yaml: can not be read: is larger than 8388608 bytes',
    ])
  })
})
