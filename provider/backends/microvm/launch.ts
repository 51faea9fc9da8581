/** Starts a program of a machine: in its folder, under its own user, in its network and control groups, with nothing of the host's environment. */
import { type ChildProcess, spawn } from 'node:child_process'
import { startTimeOf } from '../process-record.ts'
import { throughGroups } from '../through-groups.ts'
import { MicrovmError, printable } from './microvm-error.ts'

/** What to start, and where. */
export interface Launch {
  readonly command: readonly string[]
  /** Working folder. All paths in the command are relative to it, so that the folders above may be shut to the user. */
  readonly cwd: string
  /** Undefined: the host's own. */
  readonly uid?: number | undefined
  /** Further groups of that user, for devices. */
  readonly groups?: readonly number[]
  /** Name of a network namespace; the host's own by default. */
  readonly network?: string | undefined
  /** A process joins by writing `0` into each. */
  readonly joinFiles: readonly string[]
  /** Where its output goes: kept and bounded by default. */
  readonly output?: 'kept' | 'ignored'
}

/** A program that runs, also when this process ends. */
export interface Launched {
  readonly pid: number
  readonly startTime: string
  /** Resolves when it has ended. */
  readonly exited: Promise<void>
  readonly hasExited: () => boolean
  /** The last of what it said, fit to print; empty when it said nothing. */
  readonly said: () => string
}

const KEPT_BYTES = 4_096
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** @throws MicrovmError `binary_missing` when it can't be started */
export async function launch({
  command,
  cwd,
  uid,
  groups = [],
  network,
  joinFiles,
  output = 'kept',
}: Launch): Promise<Launched> {
  const stdio = output === 'kept' ? 'pipe' : 'ignore'
  const [program = '', ...args] = throughGroups(joinFiles, [
    ...(network === undefined ? [] : ['nsenter', `--net=/run/netns/${network}`, '--']),
    ...(uid === undefined ? [] : asUser(uid, groups)),
    ...command,
  ]) // prettier-ignore
  const child: ChildProcess = spawn(program, args, {
    cwd,
    env: { PATH },
    stdio: ['ignore', stdio, stdio],
    // A Ctrl-C in the terminal is for the host, which then ends its sandboxes in its own way.
    detached: true,
  })
  let text = ''
  let over = false
  for (const stream of [child.stdout, child.stderr])
    // Goes on for as long as it runs: a full pipe would hold it up.
    stream?.on('data', (chunk: Buffer) => (text = (text + chunk.toString('latin1')).slice(-KEPT_BYTES)))
  const exited = new Promise<void>((resolve) => {
    const end = (): void => {
      over = true
      resolve()
    }
    child.once('close', end).once('error', end)
  })
  const started = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
    child.once('spawn', () => resolve(undefined)).once('error', resolve)
  })
  const { pid } = child
  if (started !== undefined || pid === undefined)
    throw new MicrovmError('binary_missing', `can't start \`${command[0] ?? ''}\`: ${started?.code ?? 'no process'}`, started) // prettier-ignore
  return {
    pid,
    startTime: (await startTimeOf(pid)) ?? '',
    exited,
    hasExited: () => over,
    said: () => printable(text.trim().split('\n').at(-1) ?? ''),
  }
}

function asUser(uid: number, groups: readonly number[]): string[] {
  const others = groups.length === 0 ? '--clear-groups' : `--groups=${groups.join(',')}`
  return ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, others, '--inh-caps=-all', '--bounding-set=-all', '--no-new-privs', '--'] // prettier-ignore
}
