/** A disk that can be filled and freed: a tmpfs of the mount namespace that this runs in. */
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'

/** Of the audit log, at most; most of it is never used. */
const SIZE = '3g'

/** Mounts it on a folder. */
export function mountDisk(folder: string): void {
  mount('-t', 'tmpfs', '-o', `size=${SIZE}`, 'none', folder)
}

/** Leaves no room. A gateway may write between the look and the deed, and less than is used can't be had: then it is done again. */
export function fill(folder: string): void {
  for (let left = 50; ; left--) {
    try {
      mount('-o', `remount,size=${Math.max(4, Math.ceil(usedBytes(folder) / 1024))}k`, folder)
      return
    } catch (error) {
      if (left === 0) throw error
    }
  }
}

/** Gives the room back. */
export function free(folder: string): void {
  mount('-o', `remount,size=${SIZE}`, folder)
}

/** Unmounts it, whoever still has a file open there. */
export function unmountDisk(folder: string): void {
  spawnSync('umount', ['-l', folder])
}

function usedBytes(folder: string): number {
  const { blocks, bfree, bsize } = fs.statfsSync(folder)
  return (blocks - bfree) * bsize
}

function mount(...args: string[]): void {
  const { status, stderr, error } = spawnSync('mount', args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`mount ${args.join(' ')}: ${error?.message ?? stderr}`)
}
