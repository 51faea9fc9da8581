/** A command line that first enters control groups and forbids core files, and then gives way to the program. */

/** No core files: they are written by the host's own handler, with the host's rights. Then into the groups, and only from in there on. */
const LAUNCHER =
  'ulimit -c 0\ngroups=$1\nshift\nwhile [ "$groups" -gt 0 ]; do echo 0 > "$1" || exit 125; shift; groups=$((groups - 1)); done\nexec "$@"'

/** `joinFiles` as of `makeCgroup`; the process keeps its number. */
export function throughGroups(joinFiles: readonly string[], command: readonly string[]): readonly string[] {
  return ['/bin/sh', '-c', LAUNCHER, 'sallyport', String(joinFiles.length), ...joinFiles, ...command]
}
