import { execFileSync, spawnSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  chownSync,
  closeSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { decideName, parseAuthority, SallyportError, type Layers } from '../../../policies/index.ts'
import { createPolicySource, type PolicySource } from '../../../proxy/policy/policy-source.ts'
import type { FileChange } from '../../../proxy/policy/tenant-files/file-layers.ts'
import { encodeTenant, readFileName } from '../../../proxy/policy/tenant-files/file-name.ts'
import { operatorIdentity } from '../../../proxy/tokens/operator-identity.ts'
import { EVERYWHERE } from '../egress/permits.ts'

const HOST = 'api.example.test'
const OTHER = 'other.example.test'
/** Far more than it takes (two looks, four in a second), for a machine that is busy. */
const SOON = { timeout: 10_000, interval: 20 }

let folder: string
const closing: (() => void)[] = []
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-files-'))
  mkdirSync(join(folder, 'tenants'), { mode: 0o755 })
})
afterEach(() => {
  for (const close of closing.splice(0)) close()
  rmSync(folder, { recursive: true, force: true })
})

describe('names', () => {
  test.each([
    ['acme.yaml', 'acme'],
    ['acme.yml', 'acme'],
    ['acme.json', 'acme'],
    ['Acme.yaml', 'Acme'],
    ['a.b-c_D9.yaml', 'a.b-c_D9'],
    ['acme.yaml.json', 'acme.yaml'],
    ['%2E..yaml', '..'],
    ['%2E.yaml', '.'],
    ['a%2Fb.yaml', 'a/b'],
    ['%00.yaml', '\0'],
    ['%D0%B0cme.yaml', '\u0430cme'],
    ['100%25.yaml', '100%'],
    ['a%20b.yaml', 'a b'],
  ])('`%s` stands for a tenant', (name, tenant) => {
    expect(readFileName(name)).toEqual({ kind: 'tenant', tenant })
  })

  test.each([
    ['a letter that needs no `%`', '%61cme.yaml'],
    ['digits in lower case', 'a%2fb.yaml'],
    ['a look-alike as it is', '\u0430cme.yaml'],
    ['a full-width letter', '\uff41cme.yaml'],
    ['a space', 'a b.yaml'],
    ['a dot that needs no `%`', '%2E%2E.yaml'],
    ['half an escape', 'acme%2.yaml'],
    ['a lone percent sign', '100%.yaml'],
    ['bytes that are no UTF-8', '%FF.yaml'],
    ['a surrogate in UTF-8', '%ED%A0%80.yaml'],
    ['UTF-8 that is longer than it has to be', '%C0%AE%C0%AE.yaml'],
    ['too long a name', `${'a'.repeat(101)}.yaml`],
  ])('%s stands for nobody', (_sentence, name) => {
    expect(readFileName(name)).toMatchObject({ kind: 'misnamed' })
  })

  test.each([
    '..data',
    '.acme.yaml.swp',
    '.yaml',
    'README',
    'acme.yaml~',
    'acme.YAML',
    'acme.txt',
    '#acme.yaml#',
    '..',
    'acme',
  ])('`%s` is no affair of ours', (name) => {
    expect(readFileName(name)).toEqual({ kind: 'other' })
  })

  test('property: one name for each tenant, without a slash, and read back as that tenant', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 1, maxLength: 100 }), (tenant) => {
        fc.pre(tenant.isWellFormed() && tenant.length <= 100)
        const name = `${encodeTenant(tenant)}.yaml`
        expect(name).toMatch(/^[A-Za-z0-9._%-]+$/)
        expect(readFileName(name)).toEqual({ kind: 'tenant', tenant })
      }),
    )
  })
})

describe('a folder', () => {
  test('holds the policies of tenants, in YAML and JSON, with their modes and names of policies', async () => {
    put('acme.yaml', `kind: static\nallowedHosts: [${HOST}]\n`)
    put('other.json', JSON.stringify({ kind: 'static', allowedHosts: [OTHER] }))
    put('watched.yaml', 'kind: deny-all\nmode: report\n')
    put('named.yaml', 'kind: named\nname: narrow\n')
    put('%2E..yaml', 'kind: allow-all\n')
    const { source, faults } = open()
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    expect(await verdict(source, 'acme', OTHER)).toBe('host_not_allowed tenant')
    expect(await verdict(source, 'other', OTHER)).toBe('allow')
    expect(await verdict(source, 'watched', HOST)).toBe('allow report')
    expect(await verdict(source, 'named', HOST)).toBe('allow')
    expect(await verdict(source, '..', HOST)).toBe('allow')
    expect(await verdict(source, 'nobody', HOST)).toBe('host_not_allowed tenant')
    expect(await verdict(source, 'ACME', HOST)).toBe('host_not_allowed tenant')
    expect(await source.tenantInForce('acme')).toMatchObject({ source: 'file' })
    expect(await source.tenantInForce('nobody')).toBeUndefined()
    expect(source.tenants()).toContain('acme')
    expect(faults).toEqual([])
  })

  test('what the section says of a tenant comes first', async () => {
    put('acme.yaml', 'kind: allow-all\n')
    const { source } = open({ tenants: { acme: { kind: 'deny-all' } } })
    expect(await verdict(source, 'acme', HOST)).toBe('host_not_allowed tenant')
    expect(await source.tenantInForce('acme')).toMatchObject({ source: 'configuration' })
  })

  const ways: readonly (readonly [string, (name: string, text: string) => void])[] = [
    ['written in place', (name, text) => put(name, text)],
    [
      'renamed into place',
      (name, text) => {
        put(`.${name}.draft`, text)
        renameSync(path(`.${name}.draft`), path(name))
      },
    ],
    [
      'taken away and made anew',
      (name, text) => {
        rmSync(path(name), { force: true })
        put(name, text)
      },
    ],
  ]
  test.each(ways)('a file that is %s is in force within a second', async (_sentence, write) => {
    write('acme.yaml', allowing(HOST))
    const { source, told, changes } = open()
    write('acme.yaml', allowing(OTHER))
    await vi.waitFor(async () => expect(await verdict(source, 'acme', OTHER)).toBe('allow'), SOON)
    expect(await verdict(source, 'acme', HOST)).toBe('host_not_allowed tenant')
    expect(told()).toBe(1)
    expect(changes).toMatchObject([
      { tenant: 'acme', before: { allowedHosts: [HOST] }, after: { allowedHosts: [OTHER] } },
    ])
    write('new.yaml', allowing(HOST))
    await vi.waitFor(async () => expect(await verdict(source, 'new', HOST)).toBe('allow'), SOON)
  })

  test('a folder as a ConfigMap is mounted: one link is swapped, and all files are others', async () => {
    const mount = (version: string, text: string): void => {
      mkdirSync(path(`..${version}`))
      writeFileSync(path(`..${version}/acme.yaml`), text)
      symlinkSync(`..${version}`, path('..data_tmp'))
      renameSync(path('..data_tmp'), path('..data'))
    }
    mount('2026_01', allowing(HOST))
    symlinkSync('..data/acme.yaml', path('acme.yaml'))
    const { source, faults } = open()
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    mount('2026_02', allowing(OTHER))
    rmSync(path('..2026_01'), { recursive: true })
    await vi.waitFor(async () => expect(await verdict(source, 'acme', OTHER)).toBe('allow'), SOON)
    expect(faults).toEqual([])
  })

  test('a link to the folder itself may be swapped', async () => {
    for (const [name, host] of [
      ['one', HOST],
      ['two', OTHER],
    ] as const) {
      mkdirSync(join(folder, name))
      writeFileSync(join(folder, name, 'acme.yaml'), allowing(host))
    }
    rmSync(path(''), { recursive: true })
    symlinkSync('one', path(''))
    const { source } = open()
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    symlinkSync('two', join(folder, 'link'))
    renameSync(join(folder, 'link'), path(''))
    await vi.waitFor(async () => expect(await verdict(source, 'acme', OTHER)).toBe('allow'), SOON)
  })

  test('a file that is taken away denies', async () => {
    put('acme.yaml', allowing(HOST))
    put('stays.yaml', allowing(HOST))
    const { source, changes } = open()
    rmSync(path('acme.yaml'))
    await vi.waitFor(async () => expect(await verdict(source, 'acme', HOST)).toBe('host_not_allowed tenant'), SOON)
    expect(await verdict(source, 'stays', HOST)).toBe('allow')
    expect(changes).toMatchObject([{ tenant: 'acme', before: { allowedHosts: [HOST] }, after: undefined }])
  })

  test('a bad file keeps the last good policy, is told once, and mends', async () => {
    put('acme.yaml', allowing(HOST))
    const { source, faults } = open()
    put('acme.yaml', 'kind: static\nallowedHosts: ["*"]\n')
    await vi.waitFor(() => expect(source.tenantFiles()?.faults).toHaveLength(1), SOON)
    expect(source.tenantFiles()?.faults[0]).toMatchObject({
      tenant: 'acme',
      message: expect.stringContaining('allowedHosts[0]: `*` is refused') as string,
    })
    await looks(3)
    expect(faults).toHaveLength(1)
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    put('acme.yaml', allowing(OTHER))
    await vi.waitFor(async () => expect(await verdict(source, 'acme', OTHER)).toBe('allow'), SOON)
    expect(source.tenantFiles()?.faults).toEqual([])
  })

  test('a file that is bad from the start denies its tenant, and nobody else', async () => {
    put('acme.yaml', 'kind: open\n')
    put('other.yaml', allowing(HOST))
    const { source, faults } = open()
    expect(await verdict(source, 'acme', HOST)).toBe('policy_unavailable tenant')
    expect(await verdict(source, 'other', HOST)).toBe('allow')
    expect(faults).toHaveLength(1)
  })

  test('a reload keeps the last good policy of a file that is bad meanwhile, also when all are read again', async () => {
    put('acme.yaml', allowing(HOST))
    const { source, section } = open()
    put('acme.yaml', 'kind: ')
    source.replace(section)
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    source.replace({ ...section, sets: { corp: ['wiki.corp.example'] } })
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    expect(source.tenantFiles()?.faults).toHaveLength(1)
  })

  test('files are watched over a reload, and read by the sets of the new section', async () => {
    put('acme.yaml', `kind: static\nallowedHosts: ['@corp']\n`)
    const { source, section } = open({ sets: { corp: [HOST] } })
    source.replace(section)
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    source.replace({ ...section, sets: { corp: [OTHER] } })
    expect(await verdict(source, 'acme', OTHER)).toBe('allow')
    expect(await verdict(source, 'acme', HOST)).toBe('host_not_allowed tenant')
    put('acme.yaml', allowing(HOST))
    await vi.waitFor(async () => expect(await verdict(source, 'acme', HOST)).toBe('allow'), SOON)
    source.replace({ ...section, tenantFiles: undefined })
    expect(await verdict(source, 'acme', HOST)).toBe('host_not_allowed tenant')
  })

  test('a reload with a folder that is not there leaves the old one', async () => {
    put('acme.yaml', allowing(HOST))
    const { source, section } = open()
    expect(() => source.replace({ ...section, tenantFiles: { path: join(folder, 'nowhere') } })).toThrow(SallyportError)
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
  })

  test('a folder that vanishes: stale, then denied, then back', async () => {
    put('acme.yaml', allowing(HOST))
    const { source, faults } = open({}, { staleSeconds: 1 })
    renameSync(path(''), join(folder, 'away'))
    await vi.waitFor(() => expect(faults).toHaveLength(1), SOON)
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    await vi.waitFor(async () => expect(await verdict(source, 'acme', HOST)).toBe('policy_unavailable tenant'), SOON)
    expect(source.tenantFiles()).toMatchObject({ isStale: true })
    expect(faults).toHaveLength(1)
    renameSync(join(folder, 'away'), path(''))
    await vi.waitFor(async () => expect(await verdict(source, 'acme', HOST)).toBe('allow'), SOON)
    expect(source.tenantFiles()).toMatchObject({ isStale: false, faults: [] })
  })

  test('nothing is looked at after closing', async () => {
    put('acme.yaml', allowing(HOST))
    const { source, told } = open()
    source.close()
    put('acme.yaml', allowing(OTHER))
    await looks(4)
    expect(told()).toBe(0)
    expect(await verdict(source, 'acme', OTHER)).toBe('policy_unavailable')
  })
})

describe('a folder by an attacker, or by accident', () => {
  const bad: readonly (readonly [string, (file: string) => void, RegExp])[] = [
    ['a link to itself', (file) => symlinkSync('acme.yaml', file), /links lead in a circle/],
    ['a link to nowhere', (file) => symlinkSync('nothing.yaml', file), /no such file/],
    [
      'a link out of the folder',
      (file) => {
        writeFileSync(join(folder, 'outside.yaml'), allowing(HOST))
        symlinkSync('../outside.yaml', file)
      },
      /leads out of its folder/,
    ],
    [
      'a link to a secret of the machine',
      (file) => symlinkSync('/etc/shadow', file),
      /leads out of its folder|permission denied/,
    ],
    ['a pipe', (file) => execFileSync('mkfifo', [file]), /is not a file/],
    ['a folder', (file) => mkdirSync(file), /is not a file/],
    [
      'a gigabyte',
      (file) => {
        const fd = openSync(file, 'w')
        ftruncateSync(fd, 2 ** 30)
        closeSync(fd)
      },
      /is larger than 1048576 bytes/,
    ],
    ['an empty file', (file) => writeFileSync(file, ''), /acme/],
    ['bytes that are no text', (file) => writeFileSync(file, Buffer.from([0xff, 0xfe, 0])), /is not UTF-8/],
    [
      'a star without quotes',
      (file) => writeFileSync(file, 'kind: static\nallowedHosts:\n  - *.example.com\n'),
      /in quotes/,
    ],
    ['HTML', (file) => writeFileSync(file, '<html><body>Not found</body></html>\n'), /acme/],
    ['aliases that multiply', (file) => writeFileSync(file, bomb()), /is not YAML|acme/],
    ['brackets without end', (file) => writeFileSync(file, '['.repeat(100_000)), /is not YAML/],
    [
      'a hundred thousand members, each another',
      (file) => writeFileSync(file, Array.from({ length: 100_000 }, (_, index) => `k${index}:`).join('\n')),
      /acme/,
    ],
    [
      'ten thousand anchors and aliases',
      (file) => writeFileSync(file, Array.from({ length: 10_000 }, (_, i) => `- &a${i} x\n- *a${i}`).join('\n')),
      /more than 200 aliases/,
    ],
    [
      'a member that stands twice',
      (file) => writeFileSync(file, `${allowing(HOST)}\nkind: allow-all\n`),
      /is not YAML/,
    ],
    ['an unknown member', (file) => writeFileSync(file, 'kind: deny-all\nallowedHosts: []\n'), /acme/],
    ['a resolver', (file) => writeFileSync(file, 'kind: resolver\n'), /acme/],
    [
      'a file that others may write',
      (file) => {
        writeFileSync(file, allowing(HOST))
        chmodSync(file, 0o666)
      },
      /can be written by other users/,
    ],
  ]
  test.each(bad)(
    '%s: its tenant is denied at the start, and keeps the last good policy later',
    async (_sentence, make, message) => {
      make(path('acme.yaml'))
      put('other.yaml', allowing(HOST))
      const first = open()
      expect(await verdict(first.source, 'acme', HOST)).toBe('policy_unavailable tenant')
      expect(await verdict(first.source, 'other', HOST)).toBe('allow')
      expect(first.faults.join('\n')).toMatch(message)
      first.source.close()

      rmSync(path('acme.yaml'), { recursive: true })
      put('acme.yaml', allowing(HOST))
      const second = open()
      rmSync(path('acme.yaml'))
      make(path('acme.yaml'))
      await vi.waitFor(() => expect(second.faults).not.toEqual([]), SOON)
      expect(await verdict(second.source, 'acme', HOST)).toBe('allow')
      expect(second.faults.join('\n')).toMatch(message)
    },
    60_000,
  )

  test('a long policy is read while others go on, and is in force whole or not at all', async () => {
    put('acme.json', JSON.stringify({ kind: 'static', allowedHosts: [HOST] }))
    const { source, changes } = open()
    const many = Array.from({ length: 60_000 }, (_, index) => `host-${index}.example.com`)
    put('acme.json', JSON.stringify({ kind: 'static', allowedHosts: [...many, OTHER] }))
    const seen = new Set<string>()
    for (let isOver = false; !isOver;) {
      const now = await Promise.all([HOST, OTHER, 'host-0.example.com'].map((host) => verdict(source, 'acme', host)))
      seen.add(now.join(', '))
      isOver = changes.length > 0
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect([...seen]).toEqual([
      'allow, host_not_allowed tenant, host_not_allowed tenant',
      'host_not_allowed tenant, allow, allow',
    ])
  })

  test('long policies that change at once do not keep what was read of the others from being in force', async () => {
    const tenants = Array.from({ length: 12 }, (_, index) => `tenant-${index}`)
    const long = (first: string) =>
      JSON.stringify({
        kind: 'static',
        allowedHosts: [first, ...Array.from({ length: 20_000 }, (_, i) => `h${i}.${first}`)],
      })
    for (const tenant of tenants) put(`${tenant}.json`, JSON.stringify({ kind: 'static', allowedHosts: [OTHER] }))
    const { source, changes, told } = open()
    for (const tenant of tenants) put(`${tenant}.json`, long(`${tenant}.example.com`))
    await vi.waitFor(() => expect(changes).toHaveLength(12), { timeout: 30_000, interval: 20 })
    for (const tenant of tenants) expect(await verdict(source, tenant, `${tenant}.example.com`)).toBe('allow')
    expect(told()).toBeGreaterThan(3)
  }, 60_000)

  test('more than a JSON file may hold, and more than a YAML file may, changes nothing', async () => {
    const long = JSON.stringify({
      kind: 'static',
      allowedHosts: Array.from({ length: 60_000 }, (_, i) => `host-${i}.example.com`),
    })
    put('json.json', long)
    put('yaml.yaml', long)
    put('large.json', long.padEnd(4_194_305))
    const { source, faults } = open()
    expect(await verdict(source, 'json', 'host-59999.example.com')).toBe('allow')
    expect(await verdict(source, 'yaml', 'host-1.example.com')).toBe('policy_unavailable tenant')
    expect(await verdict(source, 'large', 'host-1.example.com')).toBe('policy_unavailable tenant')
    expect(faults.join('\n')).toMatch(
      /yaml\.yaml` is larger than 1048576 bytes; as JSON \(`\.json`\) it may have 4194304/,
    )
    expect(faults.join('\n')).toMatch(/large\.json` is larger than 4194304 bytes/)
  })

  test.runIf(process.geteuid?.() === 0)('a file or a folder of another user is not trusted', async () => {
    put('acme.yaml', allowing(HOST))
    chownSync(path('acme.yaml'), 12_345, 12_345)
    expect(await verdict(open().source, 'acme', HOST)).toBe('policy_unavailable tenant')
    chownSync(path(''), 12_345, 12_345)
    expect(() => open()).toThrow(/belongs to user 12345/)
  })

  test('a folder that others may write is not trusted', () => {
    chmodSync(path(''), 0o777)
    expect(() => open()).toThrow(/can be written by other users/)
  })

  /** Nobody can write there, whatever the mode says: a ConfigMap is mounted like that. */
  const canMount = spawnSync('unshare', ['-m', 'true']).status === 0
  test.runIf(canMount)('a folder that is mounted read-only is trusted, whatever its mode', () => {
    const look = [
      `import { createPolicySource } from ${JSON.stringify(join(import.meta.dirname, '../../../proxy/policy/policy-source.ts'))}`,
      `const source = createPolicySource({ policy: { tenantFiles: { path: ${JSON.stringify(path(''))} } } })`,
      `console.log(JSON.stringify(source.tenantFiles()))`,
      `source.close()`,
    ]
    writeFileSync(join(folder, 'look.ts'), look.join('\n'))
    const mounting = [
      `mount -t tmpfs -o mode=777 tmpfs '${path('')}'`,
      `printf 'kind: deny-all\\n' > '${path('acme.yaml')}'`,
      `chmod 666 '${path('acme.yaml')}'`,
    ]
    const asChild = (steps: readonly string[]) =>
      spawnSync(
        'unshare',
        ['-m', 'sh', '-ec', [...steps, `'${process.execPath}' '${join(folder, 'look.ts')}'`].join('\n')],
        {
          encoding: 'utf8',
        },
      )
    expect(asChild(mounting).stderr).toContain('can be written by other users')
    const mounted = asChild([...mounting, `mount -o remount,ro '${path('')}'`])
    expect([mounted.stderr, JSON.parse(mounted.stdout)]).toEqual([
      '',
      { path: path(''), tenants: 1, faults: [], isStale: false },
    ])
  })

  test('a folder that becomes writable by others is as one that is gone', async () => {
    put('acme.yaml', allowing(HOST))
    const { source, faults } = open({}, { staleSeconds: 0 })
    chmodSync(path(''), 0o777)
    await vi.waitFor(async () => expect(await verdict(source, 'acme', HOST)).toBe('policy_unavailable tenant'), SOON)
    expect(faults.join()).toContain('can be written by other users')
  })

  test('a path that is a pipe, a loop or nothing stops the start', () => {
    expect(() => open({}, { path: join(folder, 'nowhere') })).toThrow(/no such file/)
    symlinkSync('loop', join(folder, 'loop'))
    expect(() => open({}, { path: join(folder, 'loop') })).toThrow(/links lead in a circle/)
    execFileSync('mkfifo', [join(folder, 'pipe')])
    expect(() => open({}, { path: join(folder, 'pipe') })).toThrow(/is not a file/)
  })

  test('two files for one tenant: neither is taken', async () => {
    put('acme.yaml', allowing(HOST))
    put('acme.json', JSON.stringify({ kind: 'allow-all' }))
    const { source, faults } = open()
    expect(await verdict(source, 'acme', HOST)).toBe('policy_unavailable tenant')
    expect(faults.join()).toContain('acme.json, acme.yaml')
    rmSync(path('acme.json'))
    await vi.waitFor(async () => expect(await verdict(source, 'acme', HOST)).toBe('allow'), SOON)
    expect(source.tenantFiles()?.faults).toEqual([])
  })

  test('a misnamed file is told, and stands for nobody', async () => {
    put('\u0430cme.yaml', allowing(HOST))
    put('%61cme.yaml', allowing(HOST))
    const { source, faults } = open()
    expect(faults).toHaveLength(2)
    for (const tenant of ['acme', '\u0430cme'])
      expect(await verdict(source, tenant, HOST)).toBe('host_not_allowed tenant')
    rmSync(path('\u0430cme.yaml'))
    rmSync(path('%61cme.yaml'))
    await vi.waitFor(() => expect(source.tenantFiles()?.faults).toEqual([]), SOON)
  })

  test('half a file is not taken while it is written', async () => {
    put('acme.yaml', `kind: static\nallowedHosts: ['*.example.test']\ndeniedHosts: [${OTHER}]\n`)
    const { source } = open()
    expect(await verdict(source, 'acme', OTHER)).toBe('host_denied tenant')
    // It is whole YAML at each step, and without its end it opens what is denied.
    const answers = new Set<string>()
    const parts = [`kind: static\nallowedHosts: ['*.example.test']\n`, ...Array.from({ length: 6 }, () => '# more\n')]
    for (const [index, part] of [...parts, `deniedHosts: [${OTHER}, more.example.test]\n`].entries()) {
      if (index === 0) writeFileSync(path('acme.yaml'), part)
      else appendFileSync(path('acme.yaml'), part)
      await new Promise((resolve) => setTimeout(resolve, 100))
      answers.add(await verdict(source, 'acme', OTHER))
    }
    await vi.waitFor(
      async () => expect(await verdict(source, 'acme', 'more.example.test')).toBe('host_denied tenant'),
      SOON,
    )
    expect([...answers]).toEqual(['host_denied tenant'])
  })

  test('more files than are read: as if it were gone, and it is not read again and again', async () => {
    for (let index = 0; index < 300; index++) put(`t${index}.yaml`, 'kind: allow-all\n')
    const { source } = open({}, { staleSeconds: 0 })
    expect(source.tenantFiles()).toMatchObject({ tenants: 300, faults: [] })
    for (let index = 300; index < 10_001; index++) put(`t${index}.yaml`, '')
    await vi.waitFor(async () => expect(await verdict(source, 't1', HOST)).toBe('policy_unavailable tenant'), SOON)
    expect(source.tenantFiles()?.faults[0]?.message).toContain('more than 10000 tenants')
  }, 30_000)

  test('thousands of files are read, and one that is written in place is seen', async () => {
    for (let index = 0; index < 3_000; index++)
      put(`t${index}.json`, JSON.stringify({ kind: 'static', allowedHosts: [HOST] }))
    const { source } = open()
    expect(await verdict(source, 't2999', HOST)).toBe('allow')
    put('t2500.json', JSON.stringify({ kind: 'static', allowedHosts: [OTHER] }))
    await vi.waitFor(async () => expect(await verdict(source, 't2500', OTHER)).toBe('allow'), SOON)
  }, 30_000)
})

describe('one file for all', () => {
  const file = (): string => join(folder, 'tenants.yaml')

  test('holds a map of tenants; a change reaches only those that changed', async () => {
    writeFileSync(
      file(),
      `acme: { kind: static, allowedHosts: [${HOST}] }\nother: { kind: allow-all }\n__proto__: { kind: allow-all }\n`,
    )
    const { source, changes, told } = open({}, { path: file() })
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    expect(await verdict(source, 'toString', HOST)).toBe('host_not_allowed tenant')
    writeFileSync(file(), `acme: { kind: static, allowedHosts: [${OTHER}] }\nother: { kind: allow-all }\n`)
    await vi.waitFor(async () => expect(await verdict(source, 'acme', OTHER)).toBe('allow'), SOON)
    expect(changes.map(({ tenant }) => tenant)).toContain('acme')
    expect(changes.map(({ tenant }) => tenant)).not.toContain('other')
    expect(told()).toBe(1)
  })

  test('one bad policy in it is the affair of its tenant; a file that is no map changes nothing', async () => {
    writeFileSync(
      file(),
      `acme: { kind: static, allowedHosts: [${HOST}] }\nother: { kind: static, allowedHosts: [${HOST}] }\n`,
    )
    const { source, faults } = open({}, { path: file() })
    writeFileSync(
      file(),
      `acme: { kind: static, allowedHosts: ['*'] }\nother: { kind: static, allowedHosts: [${OTHER}] }\n`,
    )
    await vi.waitFor(async () => expect(await verdict(source, 'other', OTHER)).toBe('allow'), SOON)
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    for (const text of ['[]', 'acme', '', 'acme: {}\nacme: {}\n', '"": { kind: allow-all }']) {
      writeFileSync(file(), text)
      const before = faults.length
      await looks(3)
      expect([text, await verdict(source, 'other', OTHER)]).toEqual([text, 'allow'])
      expect(faults.length).toBeGreaterThanOrEqual(before)
    }
    expect(source.tenantFiles()?.faults.length).toBeGreaterThan(0)
  }, 15_000)

  test('one that is no map stops the start; one that vanishes is stale, then denied', async () => {
    writeFileSync(file(), '- acme\n')
    expect(() => open({}, { path: file() })).toThrow(/no map/)
    writeFileSync(file(), 'acme: { kind: allow-all }\n')
    const { source } = open({}, { path: file(), staleSeconds: 1 })
    rmSync(file())
    await looks(1)
    expect(await verdict(source, 'acme', HOST)).toBe('allow')
    await vi.waitFor(async () => expect(await verdict(source, 'acme', HOST)).toBe('policy_unavailable tenant'), SOON)
  })
})

function open(section: object = {}, files: { path?: string; staleSeconds?: number } = {}) {
  const faults: string[] = []
  const changes: FileChange[] = []
  let told = 0
  const policy = {
    ceiling: { kind: 'allow-all' as const },
    named: { narrow: { kind: 'static' as const, allowedHosts: [HOST] } },
    tenantFiles: { path: path(''), ...files },
    ...section,
  }
  const source = createPolicySource({
    policy,
    onFault: (which, error) => void faults.push(`${which}: ${error instanceof Error ? error.message : ''}`),
    onFileChange: (change) => void changes.push(change),
  })
  closing.push(() => source.close())
  source.onChange(() => told++)
  return { source, faults, changes, section: policy, told: () => told }
}

function put(name: string, text: string): void {
  writeFileSync(path(name), text)
}

function path(name: string): string {
  return name === '' ? join(folder, 'tenants') : join(folder, 'tenants', name)
}

function allowing(host: string): string {
  return `kind: static\nallowedHosts: [${host}]\n`
}

/** Waits for so many looks to have happened. */
async function looks(count: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 250 * count + 100))
}

function bomb(): string {
  const levels = Array.from(
    { length: 12 },
    (_, level) =>
      `a${level}: &a${level} [${level === 0 ? 'x' : `*a${level - 1}, *a${level - 1}, *a${level - 1}, *a${level - 1}`}]`,
  )
  return `kind: static\n${levels.join('\n')}\nallowedHosts: *a11\n`
}

async function verdict(source: PolicySource, tenant: string, host: string): Promise<string> {
  const layers: Layers = await source.layersFor(operatorIdentity({ tenant, nowMs: 0 }))
  const destination = parseAuthority(`${host}:443`)
  if (!destination.ok) throw new Error(destination.fault.message)
  const decided = decideName(layers, destination.value, EVERYWHERE)
  if (decided.effective === 'deny') return `${decided.reason} ${decided.layer ?? ''}`.trim()
  return decided.report === undefined ? 'allow' : 'allow report'
}
