/** A command line that first enters control groups and forbids core files, and then gives way to the program. */
import type { WorkerPipes } from '../worker/settings.ts'

/** No core files: they are written by the host's own handler, with the host's rights. Then into the groups, and only from in there on. */
const LAUNCHER =
  'ulimit -c 0\ngroups=$1\nshift\nwhile [ "$groups" -gt 0 ]; do echo 0 > "$1" || exit 125; shift; groups=$((groups - 1)); done\nexec "$@"'

/** `joinFiles` as of `makeCgroup`; the process keeps its number. `pipes`: what it has open besides, see {@link WorkerPipes}; their numbers have one digit. */
export function throughGroups(
  joinFiles: readonly string[],
  command: readonly string[],
  pipes?: WorkerPipes,
): readonly string[] {
  const script = `${pipes === undefined ? '' : hereDocuments(pipes)}${LAUNCHER}`
  return ['/bin/sh', '-c', script, 'sallyport', String(joinFiles.length), ...joinFiles, ...command]
}

/** Most shells keep a short one in a pipe. It is no fault when one can't be had: the worker makes its own then. */
function hereDocuments({ descriptors, mark }: WorkerPipes): string {
  return descriptors.map((descriptor) => `command exec ${descriptor}<<E || :\n${mark}\nE\n`).join('')
}
