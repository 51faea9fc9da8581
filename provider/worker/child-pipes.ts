/**
 * Real pipes for children. Node gives children socket pairs, which `/dev/stdout`, `/dev/stderr` and `/dev/stdin` cannot open,
 * so `echo failed > /dev/stderr` would fail inside every script. A FIFO that has lost its name is a pipe.
 */
import fs from 'node:fs'
import path from 'node:path'

/** Both ends, open; whoever takes them closes them. */
export interface ChildPipe {
  readonly readFd: number
  readonly writeFd: number
}

/** A store of pipes. */
export interface ChildPipes {
  /** `undefined` where pipes cannot be had (no `mkfifo`, no `/proc`): Node's own have to do. */
  take(): Promise<ChildPipe | undefined>
  /** Makes the first batch, so that the first command need not wait for it. */
  prepare(): Promise<void>
  close(): void
}

const BATCH = 12

/** Makes pipes a dozen at a time, since each batch costs a process. */
export function createChildPipes(tempFolder: string): ChildPipes {
  const store: number[] = []
  let filling: Promise<void> | undefined
  let unavailable = false

  const fill = async (): Promise<void> => {
    const fds = await makeFifos(tempFolder).catch(() => [])
    unavailable = fds.length === 0
    store.push(...fds)
  }

  const prepare = (): Promise<void> => (filling ??= fill().finally(() => (filling = undefined)))

  return {
    prepare,
    async take() {
      // Others may be waiting for the same batch.
      for (let attempts = 0; store.length === 0 && !unavailable && attempts < 64; attempts++) await prepare()
      const fifo = store.pop()
      return fifo === undefined ? undefined : openEnds(fifo)
    },
    close() {
      for (const fd of store.splice(0)) fs.closeSync(fd)
      unavailable = true
    },
  }
}

/** FIFOs without a name, each held by a descriptor. */
async function makeFifos(tempFolder: string): Promise<number[]> {
  const { execFile } = await import('node:child_process')
  const folder = fs.mkdtempSync(path.join(tempFolder, '.sallyport-'))
  const files = Array.from({ length: BATCH }, (_, index) => path.join(folder, String(index)))
  const fds: number[] = []
  try {
    await new Promise<void>((resolve, reject) => {
      execFile('mkfifo', ['-m', '600', ...files], { env: { PATH: '/usr/bin:/bin' }, timeout: 5_000 }, (error) => {
        if (error === null) resolve()
        else reject(error)
      })
    })
    for (const file of files) {
      const fd = fs.openSync(file, fs.constants.O_RDWR | fs.constants.O_NONBLOCK | fs.constants.O_NOFOLLOW)
      if (fs.fstatSync(fd).isFIFO()) fds.push(fd)
      else fs.closeSync(fd)
    }
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
  return fds
}

function openEnds(fifo: number): ChildPipe | undefined {
  try {
    const readFd = fs.openSync(`/proc/self/fd/${fifo}`, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK)
    try {
      return { readFd, writeFd: fs.openSync(`/proc/self/fd/${fifo}`, fs.constants.O_WRONLY) }
    } catch {
      fs.closeSync(readFd)
    }
  } catch {
    // Out of descriptors, or no /proc.
  } finally {
    fs.closeSync(fifo)
  }
  return undefined
}
