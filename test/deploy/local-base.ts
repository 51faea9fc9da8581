/** A base image for the build without a registry: this machine's Node, npm, certificates and a static busybox, with Debian's records of the libraries. */
import { execFileSync, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

const ROOT = path.resolve(import.meta.dirname, '../..')

export const LOCAL_BASE = 'local-node:latest'

/** Imports it into the engine behind `socketPath`. */
export function importLocalBase(socketPath: string): void {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'spb-'))
  try {
    const copy = (from: string, to = from): void => {
      fs.mkdirSync(path.join(root, path.dirname(to)), { recursive: true })
      fs.cpSync(from, path.join(root, to), { recursive: true, dereference: true })
    }
    const node = '/usr/local/bin/node'
    copy(process.execPath, node)
    copy('/usr/bin/dpkg-query')
    // What the build bundles with is linked with one library more.
    const bundler = fs
      .globSync('node_modules/@rolldown/binding-*/*.node', { cwd: ROOT })
      .map((file) => path.join(ROOT, file))
    const libraries = [process.execPath, '/usr/bin/dpkg-query', ...bundler].flatMap(linked)
    for (const file of new Set(libraries)) copy(file)
    for (const name of packagesOf(libraries)) copy(`/var/lib/dpkg/info/${name}.list`)
    for (const name of ['status', 'arch', 'info/format'])
      if (fs.existsSync(`/var/lib/dpkg/${name}`)) copy(`/var/lib/dpkg/${name}`)
    fs.mkdirSync(path.join(root, 'var/lib/dpkg/updates'))
    const npm = fs.realpathSync(execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim())
    copy(path.resolve(npm, '../..'), '/usr/local/lib/npm')
    fs.symlinkSync('../lib/npm/bin/npm-cli.js', path.join(root, 'usr/local/bin/npm'))
    copy('/etc/ssl/certs/ca-certificates.crt')
    addBusybox(root)
    fs.mkdirSync(path.join(root, 'tmp'))
    const environment = 'ENV PATH=/usr/local/bin:/usr/bin:/bin NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt'
    execFileSync(
      'sh',
      [
        '-c',
        'tar -C "$0" -c . | docker -H "unix://$1" import -c "$2" - "$3"',
        root,
        socketPath,
        environment,
        LOCAL_BASE,
      ],
      { stdio: ['ignore', 'ignore', 'inherit'] },
    )
  } finally {
    fs.rmSync(root, { recursive: true, force: true })
  }
}

function linked(program: string): string[] {
  const listed = execFileSync('ldd', [program], { encoding: 'utf8' })
  return [...listed.matchAll(/(\/\S+) \(0x/g)].flatMap(([, file]) => file ?? [])
}

/** As files of Debian's records are called: `libc6:amd64`. A merged `/usr` has files under two names; the one that is not known is complained about. */
function packagesOf(files: readonly string[]): readonly string[] {
  const names = files.flatMap((file) => [file, `/usr${file}`, fs.realpathSync(file)])
  const { stdout } = spawnSync('dpkg-query', ['--search', ...new Set(names)], { encoding: 'utf8' })
  return [...new Set(stdout.split('\n').flatMap((line) => (line === '' ? [] : line.slice(0, line.indexOf(': ')))))]
}

function addBusybox(root: string): void {
  fs.mkdirSync(path.join(root, 'bin'), { recursive: true })
  fs.copyFileSync('/bin/busybox', path.join(root, 'bin/busybox'))
  fs.chmodSync(path.join(root, 'bin/busybox'), 0o755)
  for (const name of execFileSync('/bin/busybox', ['--list'], { encoding: 'utf8' }).trim().split('\n')) {
    if (name !== 'busybox') fs.symlinkSync('/bin/busybox', path.join(root, 'bin', name))
  }
  fs.mkdirSync(path.join(root, 'usr/bin'), { recursive: true })
  fs.symlinkSync('/bin/busybox', path.join(root, 'usr/bin/env'))
}
