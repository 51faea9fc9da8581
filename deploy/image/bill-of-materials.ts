/** What is in the image, as CycloneDX: the packages of npm as npm lists them, Node, and the system packages that its libraries belong to. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import fs from 'node:fs'

interface Component {
  readonly type: string
  readonly name: string
  readonly version: string
  readonly purl?: string
  readonly 'bom-ref'?: string
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[]
  readonly properties?: readonly { readonly name: string; readonly value: string }[]
}

/** A CycloneDX document. `home` is the folder of the package as installed; `libraries` are files, each named by the component that brings it. */
export function billOfMaterials(
  home: string,
  libraries: readonly string[],
): { readonly components: readonly Component[] } {
  const npm = JSON.parse(
    execFileSync('npm', ['sbom', '--sbom-format', 'cyclonedx', '--sbom-type', 'application'], {
      cwd: home,
      encoding: 'utf8',
      maxBuffer: 64 * 1024 * 1024,
    }),
  ) as { readonly components: readonly Component[] }
  const version = process.version.slice(1)
  const node = {
    ...component('application', 'node', version, `pkg:generic/node@${version}`),
    ...filed([process.execPath]),
  }
  return { ...npm, components: [...npm.components, node, ...systemComponents(libraries)] }
}

/** Debian's package of each library; one that no package owns stands for itself, by its hash. */
function systemComponents(files: readonly string[]): readonly Component[] {
  const owned = new Map<string, string[]>()
  for (const file of files) {
    const owner = ownerOf(file) ?? ''
    owned.set(owner, [...(owned.get(owner) ?? []), file])
  }
  return [...owned].flatMap(([owner, its]) => {
    if (owner === '') return its.map((file) => ({ ...component('file', file, 'unknown'), ...filed([file]) }))
    const [name = '', version = '', architecture = ''] = execFileSync(
      'dpkg-query',
      ['--show', '--showformat', '${Package}\t${Version}\t${Architecture}', owner],
      { encoding: 'utf8' },
    ).split('\t')
    const purl = `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?arch=${architecture}`
    return [{ ...component('library', name, version, purl), ...filed(its) }]
  })
}

/** A merged `/usr` has files under two names, and the package system knows one of them. */
function ownerOf(file: string): string | undefined {
  const real = fs.realpathSync(file)
  for (const name of [file, real, real.replace(/^\/usr/, ''), `/usr${file}`]) {
    try {
      const owner = execFileSync('dpkg-query', ['--search', name], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      })
      return owner.slice(0, owner.indexOf(': '))
    } catch {
      // Not under this name, or no such package system.
    }
  }
  return undefined
}

function component(type: string, name: string, version: string, purl?: string): Component {
  return { type, name, version, 'bom-ref': purl ?? name, ...(purl !== undefined && { purl }) }
}

function filed(files: readonly string[]): Pick<Component, 'hashes' | 'properties'> {
  const [only] = files
  return {
    properties: files.map((value) => ({ name: 'sallyport:file', value })),
    ...(files.length === 1 &&
      only !== undefined && {
        hashes: [{ alg: 'SHA-256', content: createHash('sha256').update(fs.readFileSync(only)).digest('hex') }],
      }),
  }
}
