/** Where the command line looks for what microVMs boot from. */
import { existsSync } from 'node:fs'
import path from 'node:path'

/** Where deploy/microvm puts it in its own example. */
export const DEFAULT_IMAGES = '/var/lib/sallyport/microvm'

/** The files of a folder that deploy/microvm filled; a kernel with its drivers built in has no second one. */
export function imagesIn(folder: string): {
  readonly kernelImage: string
  readonly initrdImage?: string
  readonly rootfsImage: string
} {
  const [kernelImage, initrdImage, rootfsImage] = ['vmlinux', 'initrd.cpio', 'rootfs.squashfs'].map((name) =>
    path.resolve(folder, name),
  ) as [string, string, string]
  return { kernelImage, rootfsImage, ...(existsSync(initrdImage) && { initrdImage }) }
}
