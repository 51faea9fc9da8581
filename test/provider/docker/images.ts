/** Images from scratch, without a registry: `busybox` has a shell and nothing else; `with-node` brings a Node of its own. */
import { execFileSync } from 'node:child_process'
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { Readable } from 'node:stream'
import type Docker from 'dockerode'

const BUSYBOX = '/bin/busybox'

/** `busybox`. */
export async function buildImages(docker: Docker): Promise<void> {
  await build(docker, 'busybox', [], addBusybox)
}

/** Not part of every test's engine, since it is large. */
export async function buildNodeImage(docker: Docker): Promise<void> {
  await build(
    docker,
    'with-node',
    ['LABEL sallyport.node=/opt/node', 'ENV FROM_IMAGE=yes LD_PRELOAD=/nowhere.so'],
    (folder) => {
      addBusybox(folder)
      mkdirSync(path.join(folder, 'opt'))
      copyFileSync(process.execPath, path.join(folder, 'opt/node'))
      for (const [, file = ''] of execFileSync('ldd', [process.execPath], { encoding: 'utf8' }).matchAll(
        /(\/\S+) \(0x/g,
      )) {
        mkdirSync(path.join(folder, path.dirname(file)), { recursive: true })
        copyFileSync(file, path.join(folder, file))
      }
    },
  )
}

function addBusybox(folder: string): void {
  mkdirSync(path.join(folder, 'bin'))
  copyFileSync(BUSYBOX, path.join(folder, 'bin/busybox'))
  chmodSync(path.join(folder, 'bin/busybox'), 0o755)
  for (const name of execFileSync(BUSYBOX, ['--list'], { encoding: 'utf8' }).trim().split('\n')) {
    if (name !== 'busybox') symlinkSync('busybox', path.join(folder, 'bin', name))
  }
}

async function build(
  docker: Docker,
  name: string,
  changes: readonly string[],
  fill: (folder: string) => void,
): Promise<void> {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'spi-'))
  try {
    fill(folder)
    const tar = execFileSync('tar', ['-C', folder, '-c', '.'], { maxBuffer: 1024 * 1024 * 1024 })
    const reply = await docker.importImage(Readable.from([tar]), { repo: name, tag: 'latest', changes: [...changes] })
    await new Promise((resolve, reject) =>
      docker.modem.followProgress(reply, (error, result) => (error === null ? resolve(result) : reject(error))),
    )
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
