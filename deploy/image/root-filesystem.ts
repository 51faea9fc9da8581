/**
 * Lays out the root file system of the image, in the build stage: Node, the libraries that it is linked with, the gateway with its production
 * dependencies, and a bill of materials for all of it. No shell, no package manager, nothing that can be set to run as another user.
 *
 *     node deploy/image/root-filesystem.ts FOLDER      in a checkout that was built, with development packages removed
 */
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { billOfMaterials } from './bill-of-materials.ts'

const [, , root = '/root-filesystem'] = process.argv
const HOME = '/usr/lib/sallyport'
const IDENTITY = 65_532

const libraries = librariesOf(process.execPath)
copy(process.execPath, '/usr/bin/node')
for (const library of libraries) copy(library, library)
for (const name of ['dist', 'node_modules', 'LICENSE']) copy(name, `${HOME}/${name}`)
write(`${HOME}/package.json`, `${JSON.stringify(productionManifest(), null, 2)}\n`)
fs.rmSync(path.join(root, HOME, 'node_modules/.package-lock.json'), { force: true })
fs.rmSync(path.join(root, HOME, 'node_modules/.bin'), { force: true, recursive: true })
copy('deploy/image/health.mjs', `${HOME}/health.mjs`)
write('/etc/passwd', `sallyport:x:${IDENTITY}:${IDENTITY}::/var/lib/sallyport:/nonexistent\n`)
write('/etc/group', `sallyport:x:${IDENTITY}:\n`)
write('/etc/nsswitch.conf', 'hosts: files dns\n')
write(
  '/usr/share/doc/sallyport/sbom.cdx.json',
  `${JSON.stringify(billOfMaterials(path.join(root, HOME), libraries), null, 1)}\n`,
)
fs.mkdirSync(path.join(root, 'var/lib'), { recursive: true })
fs.mkdirSync(path.join(root, 'etc/sallyport'), { recursive: true })
fs.mkdirSync(path.join(root, 'tmp'), { mode: 0o1777 })

/** Without what is not there. */
function productionManifest(): object {
  const { devDependencies, scripts, ...rest } = JSON.parse(fs.readFileSync('package.json', 'utf8')) as Record<
    string,
    unknown
  >
  return rest
}

/** What the loader maps for a program, the loader itself among it, and what the C library loads later to resolve names. */
function librariesOf(program: string): readonly string[] {
  const loader = ['/lib64/ld-linux-x86-64.so.2', '/lib/ld-linux-aarch64.so.1'].find((file) => fs.existsSync(file))
  if (loader === undefined) throw new Error('the image needs a base with glibc')
  const listed = execFileSync(loader, ['--list', program], { encoding: 'utf8' })
  const mapped = [...listed.matchAll(/=> (\/\S+) \(0x/g)].flatMap(([, file]) => file ?? [])
  const folder = path.dirname(mapped.find((file) => file.includes('/libc.so')) ?? '')
  const later = ['libnss_files.so.2', 'libnss_dns.so.2', 'libresolv.so.2']
    .map((name) => path.join(folder, name))
    .filter((file) => fs.existsSync(file))
  return [...new Set([loader, ...mapped, ...later])]
}

function copy(from: string, to: string): void {
  const target = path.join(root, to)
  fs.mkdirSync(path.dirname(target), { recursive: true })
  fs.cpSync(from, target, { recursive: true, dereference: true })
}

function write(file: string, text: string): void {
  fs.mkdirSync(path.join(root, path.dirname(file)), { recursive: true })
  fs.writeFileSync(path.join(root, file), text)
}
