/** Pipes that whoever started this process made for its first commands, which saves a start the shell that makes them otherwise. */
import fs from 'node:fs'
import type { WorkerPipes } from './settings.ts'

/**
 * Takes over those that are there for sure, each by a descriptor of this process's own making, which no child inherits. Whatever else has one of the numbers
 * is left as it is and not even read, for it may be Node's own: of a pipe of Node's both ends are in this process, of one that was handed over there is one
 * alone, and nothing is in it but the mark.
 */
export function takeHandedPipes({ descriptors, mark }: WorkerPipes): number[] {
  const targets = targetsOfAll()
  const all = [...targets.values()]
  const handed = [...new Set(descriptors)].filter((fd) => {
    const target = targets.get(fd)
    return target?.startsWith('pipe:') === true && all.indexOf(target) === all.lastIndexOf(target)
  })
  // Closed together at the end, so that no number means another file meanwhile.
  return handed
    .map((fd) => ({ fd, own: openMarked(fd, `${mark}\n`) }))
    .flatMap(({ fd, own }) => {
      if (own === undefined) return []
      fs.closeSync(fd)
      return [own]
    })
}

/** What each descriptor of this process stands for; nothing where the kernel does not say. */
function targetsOfAll(): ReadonlyMap<number, string> {
  const targets = new Map<number, string>()
  if (!fs.existsSync('/proc/self/fd')) return targets
  for (const fd of fs.readdirSync('/proc/self/fd')) {
    try {
      targets.set(Number(fd), fs.readlinkSync(`/proc/self/fd/${fd}`, 'latin1'))
    } catch {
      // The descriptor of the list itself is gone by now.
    }
  }
  return targets
}

/** The pipe, emptied, unless something else is in it. */
function openMarked(fd: number, content: string): number | undefined {
  let own: number | undefined
  try {
    own = fs.openSync(`/proc/self/fd/${fd}`, fs.constants.O_RDWR | fs.constants.O_NONBLOCK)
    const bytes = Buffer.alloc(content.length + 1)
    const length = fs.readSync(own, bytes)
    if (bytes.toString('latin1', 0, length) === content) return own
  } catch {
    // Empty, or out of descriptors.
  }
  if (own !== undefined) fs.closeSync(own)
  return undefined
}
