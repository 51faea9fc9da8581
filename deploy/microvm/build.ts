/**
 * Builds what a microVM boots from, out of Debian's packages: kernel, initial file system, root file system, and a list of what is in them.
 *
 *     node deploy/microvm/build.ts [--suite trixie] [--mirror URL] [--include git,python3] [--node FILE] FOLDER
 *
 * Needs root (or a user namespace), mmdebstrap, mksquashfs, cpio and xz. The same packages make the same bytes.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { seccompFilter } from '../../provider/backends/seccomp-filter.ts'
import { filterArchitecture } from '../../provider/backends/syscalls.ts'
import { workerFile } from '../../provider/worker-file.ts'
import { kernelElf, orderModules } from './kernel.ts'

/** Every file has this time, and no other is written anywhere. */
const EPOCH = '1735689600'
/** A shell with what scripts expect, certificates, Node, and what the guest's own programs are made of. */
const PACKAGES = [
  'base-files', 'base-passwd', 'bash', 'coreutils', 'dash', 'debianutils', 'diffutils', 'findutils', 'grep', 'gzip', 'hostname', 'libc-bin', 'mawk',
  'ncurses-base', 'perl-base', 'procps', 'sed', 'tar', 'util-linux', 'ca-certificates', 'curl', 'nodejs', 'socat', 'bubblewrap', 'busybox-static',
] // prettier-ignore
/** Drivers that a microVM has devices for; what they depend on is found out. */
const MODULES = ['virtio_mmio', 'virtio_blk', 'virtio_net', 'virtio_rng', 'vmw_vsock_virtio_transport', 'squashfs']
/** Of no use inside, and different from one build to the next. */
const LEFT_OUT = ['boot', 'var/cache', 'var/lib/apt', 'var/log', 'usr/share/man', 'usr/share/info', 'usr/share/locale', 'etc/apt', 'etc/.pwd.lock'] // prettier-ignore
/** Places that the guest lays out in memory. */
const MOUNT_POINTS = ['dev', 'proc', 'run', 'sys', 'tmp', 'workspace']

const FILES: Readonly<Record<string, string>> = {
  'etc/passwd':
    'root:x:0:0:root:/root:/usr/sbin/nologin\nsandbox:x:1000:1000::/workspace:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n',
  'etc/group': 'root:x:0:\ntty:x:5:\nsandbox:x:1000:\nnogroup:x:65534:\n',
  'etc/hosts': '127.0.0.1 localhost sandbox\n::1 localhost\n',
  'etc/hostname': 'sandbox\n',
  'etc/nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files\n',
  'etc/resolv.conf': '# No name is resolved in here: the gateway does it.\n',
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    suite: { type: 'string', default: 'trixie' },
    mirror: { type: 'string' },
    include: { type: 'string', default: '' },
    node: { type: 'string' },
  },
})
const [output] = positionals
if (output === undefined) throw new Error('usage: build.ts [--suite NAME] [--mirror URL] [--include PACKAGES] FOLDER')
const architecture = filterArchitecture(process.arch)
if (architecture === undefined) throw new Error(`no microVM is built on ${process.arch}`)
process.env['SOURCE_DATE_EPOCH'] = EPOCH
process.umask(0o022)
fs.mkdirSync(output, { recursive: true })
const work = fs.mkdtempSync(path.join(os.tmpdir(), 'sallyport-microvm-'))
try {
  const root = path.join(work, 'root')
  const kernel = path.join(work, 'kernel')
  const packages = fetchPackages(root, kernel)
  layOut(root, await workerFile())
  run('mksquashfs', [root, target('rootfs.squashfs'), '-noappend', '-all-root', '-no-xattrs', '-no-progress', '-quiet', '-comp', 'lz4']) // prettier-ignore
  const release = buildKernel(kernel, root)
  const files = ['vmlinux', 'initrd.cpio', 'rootfs.squashfs'].map((name) => [name, sha256(target(name))] as const)
  fs.writeFileSync(
    target('manifest.json'),
    `${JSON.stringify({ suite: values.suite, kernel: release, files: Object.fromEntries(files), packages }, null, 2)}\n`,
  )
} finally {
  fs.rmSync(work, { recursive: true, force: true })
}

/** Unpacked, not configured: no script of a package runs. Returns names and versions. */
function fetchPackages(root: string, kernel: string): readonly string[] {
  const listed = path.join(work, 'packages')
  const image = architecture === 'x64' ? 'linux-image-cloud-amd64' : 'linux-image-cloud-arm64'
  fs.mkdirSync(kernel)
  const fetchKernel = [
    `export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"`,
    `cd ${kernel}`,
    `apt-get download "$(apt-cache depends ${image} | sed -n 's/.*Depends: \\(linux-image-[0-9].*\\)/\\1/p' | head -n 1)"`,
    'dpkg-deb --extract ./*.deb .',
  ].join(' && ')
  run('mmdebstrap', [
    '--variant=extract',
    `--include=${[...PACKAGES, ...values.include.split(',').filter((name) => name !== '')].join(',')}`,
    `--extract-hook=ls "$1/var/cache/apt/archives" > ${listed}`,
    `--extract-hook=${fetchKernel}`,
    '--quiet',
    values.suite,
    root,
    // Else Debian's own.
    ...(values.mirror === undefined ? [] : [values.mirror]),
  ])
  const archives = [...fs.readFileSync(listed, 'utf8').split('\n'), ...fs.readdirSync(kernel)]
  return archives.filter((name) => name.endsWith('.deb')).map((name) => decodeURIComponent(name.slice(0, -4))).sort() // prettier-ignore
}

function layOut(root: string, worker: string): void {
  for (const name of LEFT_OUT) fs.rmSync(path.join(root, name), { recursive: true, force: true })
  for (const name of [...MOUNT_POINTS, 'usr/lib/sallyport']) {
    fs.rmSync(path.join(root, name), { recursive: true, force: true })
    fs.mkdirSync(path.join(root, name), { recursive: true })
  }
  for (const [name, text] of Object.entries(FILES)) fs.writeFileSync(path.join(root, name), text)
  const own = path.join(root, 'usr/lib/sallyport')
  for (const name of ['init', 'session']) fs.copyFileSync(path.join(import.meta.dirname, 'guest', name), path.join(own, name)) // prettier-ignore
  fs.copyFileSync(worker, path.join(own, 'worker.cjs'))
  fs.writeFileSync(path.join(own, 'filter.bpf'), seccompFilter(architecture ?? 'x64'))
  if (values.node !== undefined) fs.copyFileSync(values.node, path.join(root, 'usr/bin/node'))
  // What the packages' own scripts would have made.
  const authorities = path.join(root, 'usr/share/ca-certificates/mozilla')
  const bundle = fs.readdirSync(authorities).sort().map((name) => fs.readFileSync(path.join(authorities, name), 'utf8')) // prettier-ignore
  fs.mkdirSync(path.join(root, 'etc/ssl/certs'), { recursive: true })
  fs.writeFileSync(path.join(root, 'etc/ssl/certs/ca-certificates.crt'), bundle.join(''))
  fs.symlinkSync('mawk', path.join(root, 'usr/bin/awk'))
  // Nothing in here is for becoming somebody else.
  run('find', [root, '-xdev', '-perm', '/6000', '-exec', 'chmod', 'ug-s', '{}', '+'])
  run('find', [root, '-xdev', '-newermt', `@${EPOCH}`, '-exec', 'touch', '--no-dereference', '--date', `@${EPOCH}`, '{}', '+']) // prettier-ignore
}

/** The uncompressed kernel, which Firecracker wants and QEMU starts sooner, and the drivers in an archive of their own. */
function buildKernel(folder: string, root: string): string {
  const boot = path.join(folder, 'boot')
  const image = fs.readdirSync(boot).find((name) => name.startsWith('vmlinuz-'))
  if (image === undefined) throw new Error('the package of the kernel has no kernel')
  const release = image.slice('vmlinuz-'.length)
  fs.writeFileSync(target('vmlinux'), kernelElf(fs.readFileSync(path.join(boot, image))))
  const tree = path.join(work, 'initrd')
  for (const name of ['bin', 'dev', 'root', 'modules']) fs.mkdirSync(path.join(tree, name), { recursive: true })
  fs.copyFileSync(path.join(root, 'usr/bin/busybox'), path.join(tree, 'bin/busybox'))
  fs.copyFileSync(path.join(import.meta.dirname, 'guest/early-init'), path.join(tree, 'init'))
  const drivers = [path.join(folder, 'usr/lib/modules', release), path.join(folder, 'lib/modules', release)].find((each) => fs.existsSync(each)) // prettier-ignore
  orderModules(drivers ?? '', MODULES).forEach(({ name, bytes }, index) => {
    fs.writeFileSync(path.join(tree, 'modules', `${String(index).padStart(2, '0')}-${name}.ko`), bytes)
  })
  run('find', [tree, '-exec', 'touch', '--no-dereference', '--date', `@${EPOCH}`, '{}', '+'])
  const names = fs.readdirSync(tree, { recursive: true, encoding: 'utf8' }).sort()
  const archive = execFileSync('cpio', ['--create', '--format=newc', '--reproducible', '--owner=0:0', '--quiet'], {
    cwd: tree,
    input: `${names.join('\n')}\n`,
    maxBuffer: 64 * 1024 * 1024,
  })
  fs.writeFileSync(target('initrd.cpio'), archive)
  return release
}

function target(name: string): string {
  return path.join(path.resolve(output ?? '.'), name)
}

function run(program: string, args: readonly string[]): void {
  execFileSync(program, args, { stdio: ['ignore', 2, 2] })
}

function sha256(file: string): string {
  return createHash('sha256').update(fs.readFileSync(file)).digest('hex')
}
