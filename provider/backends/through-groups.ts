/** A command line that first enters control groups and forbids core files, and then gives way to the program. */
import type { WorkerPipes } from '../worker/settings.ts'

/** Without words of its own it waits for them on its input: how many, and each in a line. When that ends first, nothing is wanted any more. */
const WORDS =
  'if [ $# -eq 0 ]; then read -r words || exit 0\nwhile [ "$words" -gt 0 ]; do IFS= read -r word || exit 0; set -- "$@" "$word"; words=$((words - 1)); done; fi\n'

/** No core files: they are written by the host's own handler, with the host's rights. Then into the groups, and only from in there on. */
const LAUNCHER =
  'ulimit -c 0\ngroups=$1\nshift\nwhile [ "$groups" -gt 0 ]; do echo 0 > "$1" || exit 125; shift; groups=$((groups - 1)); done\nexec "$@"'

/** `joinFiles` as of `makeCgroup`; the process keeps its number. `pipes`: what it has open besides, see {@link WorkerPipes}; their numbers have one digit. */
export function throughGroups(
  joinFiles: readonly string[],
  command: readonly string[],
  pipes?: WorkerPipes,
): readonly string[] {
  return [...waitForWords(pipes), ...wordsFor(joinFiles, command)]
}

/** The same before it is known what is to be run: it has to be told the lines of {@link wordLines}. */
export function waitForWords(pipes?: WorkerPipes): readonly string[] {
  const script = `${pipes === undefined ? '' : hereDocuments(pipes)}${WORDS}${LAUNCHER}`
  return ['/bin/sh', '-c', script, 'sallyport']
}

/** Undefined for a word that is not one line. */
export function wordLines(joinFiles: readonly string[], command: readonly string[]): string | undefined {
  const words = wordsFor(joinFiles, command)
  return words.some((word) => /[\n\0]/.test(word)) ? undefined : [words.length, ...words, ''].join('\n')
}

function wordsFor(joinFiles: readonly string[], command: readonly string[]): readonly string[] {
  return [String(joinFiles.length), ...joinFiles, ...command]
}

/** Most shells keep a short one in a pipe. It is no fault when one can't be had: the worker makes its own then. */
function hereDocuments({ descriptors, mark }: WorkerPipes): string {
  return descriptors.map((descriptor) => `command exec ${descriptor}<<E || :\n${mark}\nE\n`).join('')
}
