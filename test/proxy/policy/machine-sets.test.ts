import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { parseSets } from '../../../policies/index.ts'
import { readMachineSets, type MachineSetOptions } from '../../../proxy/policy/machine-sets.ts'

const base = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-sets-'))
afterAll(() => fs.rmSync(base, { recursive: true, force: true }))

let root: string
let places: { root: string; home: string; cwd: string; env: Record<string, string> }
let count = 0
beforeEach(() => {
  root = path.join(base, String(count++))
  places = { root, home: path.join(root, 'home/me'), cwd: path.join(root, 'work'), env: {} }
})

describe('@npm', () => {
  test("the user's registry, with its port where that is not a usual one", () => {
    write('home/me/.npmrc', 'registry=https://npm.example.test:8443/path/\n')
    expect(npm()).toEqual(['npm.example.test:8443'])
  })

  test('port 443, and 80 for http, need not be written', () => {
    write('home/me/.npmrc', 'registry=https://npm.example.test/\n@acme:registry = http://acme.example.test:80/npm/\n')
    expect(npm()).toEqual(['npm.example.test', 'acme.example.test'])
  })

  test('an address is an entry too', () => {
    write('home/me/.npmrc', 'registry=http://127.0.0.1:4873/\n@six:registry=http://[::1]:4873/\n')
    expect(npm()).toEqual(['127.0.0.1:4873', '[::1]:4873'])
  })

  test('the environment wins over the project, the project over the user, the user over the machine', () => {
    write('usr/etc/npmrc', 'registry=https://machine.example.test/\n')
    expect(npm()).toEqual(['machine.example.test'])
    write('home/me/.npmrc', 'registry=https://user.example.test/\n')
    expect(npm()).toEqual(['user.example.test'])
    write('work/.npmrc', 'registry=https://project.example.test/\n')
    expect(npm()).toEqual(['project.example.test'])
    places.env['npm_config_registry'] = 'https://environment.example.test/'
    expect(npm()).toEqual(['environment.example.test'])
  })

  test('scopes of all places count, each once', () => {
    places.env['npm_config_@one:registry'] = 'https://one.example.test/'
    write('work/.npmrc', '@one:registry=https://hidden.example.test/\n@two:registry=https://two.example.test/\n')
    write('home/me/.npmrc', 'registry=https://all.example.test/\n"@three:registry"="https://three.example.test/"\n')
    expect(npm()).toEqual(['one.example.test', 'two.example.test', 'all.example.test', 'three.example.test'])
  })

  test('upper-case variables, and other places for the files', () => {
    write('elsewhere/user', 'registry=https://user.example.test/\n')
    write('elsewhere/global', '@scope:registry=https://global.example.test/\n')
    places.env['NPM_CONFIG_USERCONFIG'] = path.join(root, 'elsewhere/user')
    places.env['NPM_CONFIG_GLOBALCONFIG'] = path.join(root, 'elsewhere/global')
    expect(npm()).toEqual(['user.example.test', 'global.example.test'])
  })

  test('comments, quotes, other settings and variables', () => {
    places.env['MIRROR'] = 'mirror.example.test'
    write(
      'home/me/.npmrc',
      [
        '; registry=https://no.example.test/',
        '# registry=https://no.example.test/',
        '//mirror.example.test/:_authToken=MARKER',
        'registry = "https://${MIRROR}/${GONE?}"',
        '',
      ].join('\r\n'),
    )
    expect(npm()).toEqual(['mirror.example.test'])
  })

  test('the last of several lines counts', () => {
    write('home/me/.npmrc', 'registry=https://first.example.test/\nregistry=https://last.example.test/\n')
    expect(npm()).toEqual(['last.example.test'])
  })

  test.each([
    ['a password', 'https://user:MARKER@npm.example.test/', ['npm.example.test']],
    ['an unknown variable', 'https://${MARKER}/', []],
    ['no URL', 'MARKER', []],
    ['another scheme', 'file:///MARKER', []],
    ['a number that could be an address', 'https://127.1/MARKER', ['127.0.0.1']],
  ])('%s: nothing of the URL but its host is shown', (_sentence, url, expected) => {
    write('home/me/.npmrc', `registry=${url}\n`)
    const { sets, notes } = readMachineSets(places)
    expect(sets.npm).toEqual(expected)
    expect(JSON.stringify({ sets, notes })).not.toContain('MARKER')
    expect(notes.some(({ set, text }) => set === 'npm' && text.includes('.npmrc'))).toBe(expected.length === 0)
  })

  test.each(['node_modules/@npmcli/config/lib/definitions/definitions.js', 'lib/utils/config/definitions.js'])(
    "without a registry, npm's own default is read from %s",
    (file) => {
      write('opt/npm/bin/npm-cli.js', '')
      write(
        `opt/npm/${file}`,
        "const all = {\n  other: new Definition('other', {\n    default: 'x' }),\n  registry: new Definition('registry', {\n    default: 'https://default.example.test/',\n    type: url,\n",
      )
      fs.mkdirSync(path.join(root, 'bin'))
      fs.symlinkSync('../opt/npm/bin/npm-cli.js', path.join(root, 'bin/npm'))
      places.env['PATH'] = `relative:${path.join(root, 'nothing')}:${path.join(root, 'bin')}`
      write('home/me/.npmrc', '@acme:registry=https://acme.example.test/\n')
      expect(npm()).toEqual(['default.example.test', 'acme.example.test'])
      write('home/me/.npmrc', 'registry=https://own.example.test/\n')
      expect(npm()).toEqual(['own.example.test'])
    },
  )

  test('nothing is configured: the set is empty, and that is said', () => {
    const { sets, notes } = readMachineSets(places)
    expect(sets).toEqual({ npm: [], apt: [] })
    expect(notes).toEqual([
      { set: 'npm', text: '`@npm` is empty: no registry is configured on this machine' },
      { set: 'apt', text: '`@apt` is empty: no source with a host is configured on this machine' },
    ])
  })

  test('what can not be read is said, and the rest is read', () => {
    fs.mkdirSync(path.join(root, 'work/.npmrc'), { recursive: true })
    write('home/me/.npmrc', 'x'.repeat(1_048_577))
    write('etc/npmrc', 'registry=https://machine.example.test/\n')
    const { sets, notes } = readMachineSets(places)
    expect(sets.npm).toEqual(['machine.example.test'])
    expect(notes[0]?.text).toBe(`${path.join(root, 'home/me/.npmrc')}: not a file of reasonable size`)
  })
})

describe('@apt', () => {
  test('one-line sources', () => {
    write(
      'etc/apt/sources.list',
      [
        'deb http://deb.example.test/debian stable main',
        'deb-src [ arch=amd64 signed-by=/k.gpg ] https://src.example.test:8443/debian stable main',
        '  deb [trusted=yes] mirror+https://mirror.example.test/list.txt stable main',
        'deb mirror://oldmirror.example.test/list stable main',
        '# deb http://off.example.test/debian stable main',
        'deb cdrom:[Debian]/ stable main',
        'deb file:/srv/debian stable main',
        'rpm http://other.example.test/ x',
        'deb http://deb.example.test/other stable main',
      ].join('\n'),
    )
    expect(apt()).toEqual([
      'deb.example.test',
      'src.example.test:8443',
      'mirror.example.test',
      'oldmirror.example.test',
    ])
  })

  test('deb822 sources', () => {
    write(
      'etc/apt/sources.list.d/all.sources',
      [
        'Types: deb deb-src',
        '# a comment within the stanza',
        'URIs: http://one.example.test/debian',
        '  https://two.example.test/debian',
        '# a comment within the field',
        '\thttp://three.example.test:8080/debian',
        'Suites: stable',
        '',
        'Enabled: no',
        'Types: deb',
        'URIs: http://off.example.test/debian',
        ' \t',
        'types: deb',
        'uris: http://FOUR.example.test/debian http://five.example.test/debian',
        'enabled: yes',
        '',
      ].join('\r\n'),
    )
    expect(apt()).toEqual([
      'one.example.test',
      'two.example.test',
      'three.example.test:8080',
      'four.example.test',
      'five.example.test',
    ])
  })

  test('the files that apt itself reads, and no others', () => {
    write('etc/apt/sources.list.d/b.list', 'deb http://b.example.test/ x main\n')
    write('etc/apt/sources.list.d/a.sources', 'Types: deb\nURIs: http://a.example.test/\n')
    write('etc/apt/sources.list.d/c.list.disabled', 'deb http://c.example.test/ x main\n')
    write('etc/apt/sources.list.d/d e.list', 'deb http://d.example.test/ x main\n')
    expect(apt()).toEqual(['a.example.test', 'b.example.test'])
  })

  test('a password in a source is not shown', () => {
    write(
      'etc/apt/sources.list',
      'deb https://user:MARKER@deb.example.test/ x main\ndeb https://user:MARKER@a..b/ x main\n',
    )
    const found = readMachineSets(places)
    expect(found.sets.apt).toEqual(['deb.example.test'])
    expect(
      found.notes.some(({ set, text }) => set === 'apt' && text.startsWith(path.join(root, 'etc/apt/sources.list'))),
    ).toBe(true)
    expect(JSON.stringify(found)).not.toContain('MARKER')
  })
})

test('this machine can be read as it is, and what is found are entries', () => {
  const { sets } = readMachineSets()
  expect(parseSets(sets).ok).toBe(true)
})

test('no host is written down', () => {
  const folder = path.join(import.meta.dirname, '../../../proxy/policy')
  for (const file of ['machine-sets.ts', 'npm-registries.ts', 'apt-sources.ts']) {
    const hosts = fs.readFileSync(path.join(folder, file), 'utf8').match(/\b[a-z0-9-]+\.(?:org|com|net|io|dev)\b/g)
    expect(hosts).toBeNull()
  }
})

function npm(options: MachineSetOptions = places): readonly string[] {
  return readMachineSets(options).sets.npm
}

function apt(): readonly string[] {
  return readMachineSets(places).sets.apt
}

function write(file: string, text: string): void {
  const whole = path.join(root, file)
  fs.mkdirSync(path.dirname(whole), { recursive: true })
  fs.writeFileSync(whole, text)
}
