/** Kernel and root file system of `deploy/microvm`: built once for a test file, or those that `SALLYPORT_MICROVM_IMAGES` names. */
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import type { SelfHostedBackendConfig } from '../../../provider/index.ts'

export interface Images {
  readonly config: Pick<SelfHostedBackendConfig, 'kernelImage' | 'initrdImage' | 'rootfsImage'>
  readonly folder: string
  readonly remove: () => void
}

/** Takes most of a minute when it has to build. */
export function microvmImages(): Images {
  const given = process.env['SALLYPORT_MICROVM_IMAGES']
  const folder = given ?? fs.mkdtempSync('/tmp/spi-')
  if (given === undefined) buildImages(folder)
  return {
    folder,
    config: {
      kernelImage: path.join(folder, 'vmlinux'),
      initrdImage: path.join(folder, 'initrd.cpio'),
      rootfsImage: path.join(folder, 'rootfs.squashfs'),
    },
    remove: () => {
      if (given === undefined) fs.rmSync(folder, { recursive: true })
    },
  }
}

export function buildImages(folder: string): void {
  const program = path.join(import.meta.dirname, '../../../deploy/microvm/build.ts')
  execFileSync(process.execPath, [program, folder], { stdio: ['ignore', 'ignore', 'pipe'] })
}
