import { describe, expect, it } from 'vitest'
import { decideName, parseEntry, PRESETS } from '../../policies/index.ts'
import { allowing, codeOf, destination, layers, network, valueOf } from './make.ts'

/** For each set: one host that it is for, and hosts that are near but stay closed. */
const EDGES: Readonly<Record<string, readonly [opens: string, ...closed: string[]]>> = {
  alpine: ['dl-cdn.alpinelinux.org', 'alpinelinux.org', 'gitlab.alpinelinux.org', 'mirror.example.alpinelinux.org'],
  anthropic: [
    'api.anthropic.com',
    'anthropic.com',
    'claude.ai',
    'console.anthropic.com',
    'api.anthropic.com.example.net',
  ],
  bitbucket: ['bitbucket.org', 'team.bitbucket.io', 'atlassian.net', 'team.bitbucket.org'],
  conda: ['conda.anaconda.org', 'api.anaconda.org', 'anaconda.org', 'anaconda.cloud'],
  crates: ['index.crates.io', 'crates.io', 'docs.rs', 'github.com'],
  debian: ['deb.debian.org', 'debian.org', 'snapshot.debian.org', 'ftp.de.debian.org', 'people.debian.org'],
  docker: ['registry-1.docker.io', 'hub.docker.com', 'docker.io', 'bucket.r2.cloudflarestorage.com', 'docker.com'],
  ghcr: ['ghcr.io', 'github.com', 'raw.githubusercontent.com', 'api.github.com'],
  github: [
    'github.com',
    'gist.github.com',
    'gist.githubusercontent.com',
    'someone.github.io',
    'ghcr.io',
    'ssh.github.com',
    'bucket.s3.amazonaws.com',
    'evilgithub.com',
  ],
  gitlab: ['gitlab.com', 'someone.gitlab.io', 'registry.gitlab.com', 'gitlab.example.com'],
  golang: ['proxy.golang.org', 'github.com', 'storage.googleapis.com', 'pkg.go.dev', 'golang.org'],
  'google-ai': [
    'generativelanguage.googleapis.com',
    'storage.googleapis.com',
    'us-central1-aiplatform.googleapis.com',
    'googleapis.com',
    'accounts.google.com',
  ],
  gradle: ['plugins.gradle.org', 'scans.gradle.com', 'gradle.com', 'github.com', 'repo.maven.apache.org'],
  hex: ['repo.hex.pm', 'hex.pm', 'hexdocs.pm'],
  huggingface: [
    'huggingface.co',
    'someone.hf.space',
    'router.huggingface.co',
    'endpoints.huggingface.cloud',
    'hf.co',
    'cdn.hf.co',
    'xethub.hf.co',
  ],
  maven: ['repo.maven.apache.org', 'central.sonatype.com', 'oss.sonatype.org', 'jitpack.io', 'maven.apache.org'],
  mistral: ['api.mistral.ai', 'chat.mistral.ai', 'console.mistral.ai', 'mistral.ai'],
  nuget: ['api.nuget.org', 'www.nuget.org', 'nuget.org', 'pkgs.dev.azure.com'],
  openai: [
    'api.openai.com',
    'openai.com',
    'chatgpt.com',
    'auth.openai.com',
    'someone.openai.azure.com',
    'files.oaiusercontent.com',
  ],
  openrouter: ['openrouter.ai', 'api.openai.com', 'sub.openrouter.ai'],
  packagist: ['repo.packagist.org', 'packagist.org', 'packagist.com', 'api.github.com'],
  pypi: ['pypi.org', 'upload.pypi.org', 'test.pypi.org', 'pythonhosted.org', 'project.readthedocs.io'],
  rubygems: ['rubygems.org', 'rubydoc.info', 'github.com', 'sub.rubygems.org'],
  ubuntu: ['archive.ubuntu.com', 'ppa.launchpadcontent.net', 'de.archive.ubuntu.com', 'ubuntu.com', 'esm.ubuntu.com'],
}

const SHARED_HOSTING = [
  'gist.github.com',
  'pastebin.com',
  's3.amazonaws.com',
  'storage.googleapis.com',
  'someone.github.io',
  'webhook.site',
  'example.com',
]

function isOpen(set: string, host: string, port = 443): boolean {
  const claim = layers(['claim', allowing([`@${set}`])])
  return decideName(claim, destination(`${host}:${port}`), network()).effective === 'allow'
}

it('every shipped set is in the table of this test', () => {
  expect(PRESETS.map(({ name }) => name)).toEqual(Object.keys(EDGES).sort())
})

describe.each(PRESETS.map((preset) => [preset.name, preset] as const))('@%s', (name, preset) => {
  const [opens = '', ...closed] = EDGES[name] ?? []

  it('opens what it is for, on 80 and 443', () => {
    expect(isOpen(name, opens)).toBe(true)
    expect(isOpen(name, opens, 80)).toBe(true)
    expect(isOpen(name, opens, 22)).toBe(false)
  })

  it.each([...closed, ...SHARED_HOSTING])('leaves %s closed', (host) => {
    expect(isOpen(name, host)).toBe(false)
  })

  it('holds entries in canonical form, of names, without ports, each once', () => {
    const texts = preset.entries.map((text) => valueOf(parseEntry(text, { from: 'token' })).text)
    expect(texts).toEqual(preset.entries)
    expect(new Set(texts).size).toBe(texts.length)
    for (const text of texts) expect(text).toMatch(/^(\*\.)?[a-z0-9.-]+$/)
  })

  it('says what it opens and what it leaves closed', () => {
    expect(preset.opens).not.toBe('')
    expect(preset.leavesClosed).not.toBe('')
  })

  it('takes no port', () => {
    expect(codeOf(parseEntry(`@${name}:443`, { from: 'file' }))).toBe('preset')
  })
})
