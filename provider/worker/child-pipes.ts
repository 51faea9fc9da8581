/**
 * Real pipes for children. Node gives children socket pairs, which `/dev/stdout`, `/dev/stderr` and `/dev/stdin` cannot open,
 * so `echo failed > /dev/stderr` would fail inside every script. Node makes no pipes, but a shell does, for its here-documents,
 * and Linux opens them once more by `/proc/PID/fd`. (A named FIFO would not do: opening one blocks until the other side is there.)
 */
import childProcess from 'node:child_process'
import fs from 'node:fs'

/** Both ends, open; whoever takes them closes them. */
export interface ChildPipe {
  readonly readFd: number
  readonly writeFd: number
}

/** A store of pipes. */
export interface ChildPipes {
  /** `undefined` where pipes cannot be had: Node's own have to do. */
  take(): Promise<ChildPipe | undefined>
  /** Sees to it that the next command need not wait. */
  prepare(): Promise<void>
  close(): void
}

// Shells know descriptors of one digit. The documents are not empty, since some take /dev/null for those.
const NUMBERS = [3, 4, 5, 6, 7, 8, 9]
const SCRIPT = `${NUMBERS.map((number) => `exec ${number}<<E\nx\nE\n`).join('')}echo; kill -STOP $$\n`
const LIMIT_MS = 5_000

/** A command takes so many at most. */
const ENOUGH = 3
/** After the store has become small: the command that took from it is started by then, and has perhaps ended. */
const REFILL_MS = 50

/** Makes pipes a few at a time, since each batch costs a process. `given` are the first: empty pipes, each held by a descriptor that no child inherits. */
export function createChildPipes(given: readonly number[] = []): ChildPipes {
  const store = [...given]
  let filling: Promise<number> | undefined
  let refill: NodeJS.Timeout | undefined
  let unavailable = process.platform !== 'linux'

  const fill = async (): Promise<number> => {
    const fds = await makePipes().catch(() => [])
    if (unavailable) fds.splice(0).forEach((fd) => fs.closeSync(fd))
    store.push(...fds)
    return fds.length
  }
  /** Resolves to how many there were. */
  const makeMore = (): Promise<number> => {
    clearTimeout(refill)
    refill = undefined
    return (filling ??= fill().finally(() => (filling = undefined)))
  }
  const prepareLater = (): void => {
    if (store.length < ENOUGH && !unavailable) refill ??= setTimeout(() => void makeMore(), REFILL_MS).unref()
  }

  return {
    prepare: async () => {
      if (store.length < ENOUGH && !unavailable) await makeMore()
    },
    async take() {
      // Others may be waiting for the same batch.
      for (let attempts = 0; store.length === 0 && !unavailable && attempts < 64; attempts++)
        if ((await makeMore()) === 0) unavailable = true
      const pipe = store.pop()
      prepareLater()
      return pipe === undefined ? undefined : openEnds(pipe)
    },
    close() {
      clearTimeout(refill)
      for (const fd of store.splice(0)) fs.closeSync(fd)
      unavailable = true
    },
  }
}

/** Empty pipes, each held by a descriptor. */
async function makePipes(): Promise<number[]> {
  const shell = childProcess.spawn('/bin/sh', ['-c', SCRIPT], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: {},
    timeout: LIMIT_MS,
    killSignal: 'SIGKILL',
  })
  try {
    await new Promise((resolve, reject) => {
      shell.once('error', reject)
      shell.once('close', reject)
      shell.stdout.once('data', resolve)
    })
    return NUMBERS.flatMap((number) => adopt(`/proc/${shell.pid ?? 0}/fd/${number}`))
  } finally {
    shell.kill('SIGKILL')
  }
}

function adopt(place: string): readonly number[] {
  try {
    const fd = fs.openSync(place, fs.constants.O_RDWR | fs.constants.O_NONBLOCK)
    // A shell that keeps its documents in files gives none.
    if (fs.fstatSync(fd).isFIFO() && fs.readSync(fd, Buffer.alloc(16)) === 2) return [fd]
    fs.closeSync(fd)
  } catch {
    // No /proc, or out of descriptors.
  }
  return []
}

function openEnds(pipe: number): ChildPipe | undefined {
  try {
    const readFd = fs.openSync(`/proc/self/fd/${pipe}`, fs.constants.O_RDONLY | fs.constants.O_NONBLOCK)
    try {
      return { readFd, writeFd: fs.openSync(`/proc/self/fd/${pipe}`, fs.constants.O_WRONLY) }
    } catch {
      fs.closeSync(readFd)
    }
  } catch {
    // Out of descriptors.
  } finally {
    fs.closeSync(pipe)
  }
  return undefined
}
