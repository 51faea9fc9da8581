/**
 * What the sandbox runtime costs, and the process backend on it, as a user that is not root: for root it does not hold. Bubblewrap and the process backend's
 * own engine as the same user, so that the ratios say something. All of it in a process of that user's, which is asked for each figure by turns.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, chownSync, mkdirSync } from 'node:fs'
import path from 'node:path'
import { workerFile } from '../provider/worker-file.ts'
import type { Subject } from './sandbox-subjects.ts'

const NOBODY = 65_534
export const FIGURES = ['coldStart', 'roundTrip', 'output', 'filesIn', 'filesOut'] as const

/** What the other process is asked for. */
export interface Question {
  readonly subject: string
  readonly figure: (typeof FIGURES)[number]
}

/** What it says first. */
export interface Introduction {
  readonly subjects: readonly {
    readonly name: string
    readonly peer?: string
    readonly figures: readonly (typeof FIGURES)[number][]
  }[]
}

/** And then to each question. */
export type Answer = { readonly value: number } | { readonly error: string }

/** `folder`: of root's, short; one below it becomes the user's own. */
export async function subjectsOfNobody(folder: string, mib: number): Promise<readonly Subject[]> {
  // It may not be written by that user.
  await workerFile()
  const own = path.join(folder, 'n')
  mkdirSync(own, { mode: 0o700 })
  const isRoot = process.getuid?.() === 0
  if (isRoot) {
    chmodSync(folder, 0o711)
    chownSync(own, NOBODY, NOBODY)
  }
  const child = fork(path.join(import.meta.dirname, 'nobody-process.ts'), [own, String(mib)], {
    cwd: own,
    env: { PATH: process.env['PATH'], HOME: own, TMPDIR: own },
    ...(isRoot && { uid: NOBODY, gid: NOBODY }),
  })
  const { subjects } = await next<Introduction>(child)
  let open = subjects.length
  return subjects.map(({ name, peer, figures }) => {
    const ask = (figure: (typeof FIGURES)[number]) => async (): Promise<number> => {
      const answer = next<Answer>(child)
      child.send({ subject: name, figure } satisfies Question)
      const given = await answer
      if ('error' in given) throw new Error(`${name}: ${given.error}`)
      return given.value
    }
    return {
      name,
      ...(peer !== undefined && { peer }),
      coldStart: ask('coldStart'),
      ...Object.fromEntries(figures.map((figure) => [figure, ask(figure)])),
      close: async () => {
        open -= 1
        if (open > 0) return
        const gone = once(child, 'exit')
        child.disconnect()
        await gone
      },
    }
  })
}

async function next<T>(child: ChildProcess): Promise<T> {
  const gone = new AbortController()
  try {
    const [message] = (await Promise.race([
      once(child, 'message', { signal: gone.signal }),
      once(child, 'exit', { signal: gone.signal }).then(() => {
        throw new Error('the process of the other user has ended')
      }),
    ])) as [T]
    return message
  } finally {
    gone.abort()
  }
}
