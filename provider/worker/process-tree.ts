/** Ends everything that a command started: its process group, its descendants in other sessions, and those that left the tree. */
import fs from 'node:fs'

/** Variable that every child carries, so that what it leaves behind can be found. */
export const MARK = 'SALLYPORT_EXEC'

const PASSES = 10

/** Signal to a process group; false when there is none. */
export function signalGroup(leader: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(-leader, signal)
    return true
  } catch {
    return false
  }
}

/**
 * Kills the group of `leader` and whatever else descends from it or carries `mark` (a prefix of the variable's value).
 *
 * The group goes at one stroke, fork bombs included. The others are looked for until none is found, a bounded number of times:
 * a process that drops the variable and leaves session and tree escapes here, and ends with its sandbox.
 */
export function killTree(leader: number | undefined, mark: string): void {
  for (let pass = 0; pass < PASSES; pass++) {
    const others = findOthers(leader, mark)
    if (leader !== undefined) signalGroup(leader, 'SIGKILL')
    for (const pid of others) kill(pid)
    if (others.length === 0) return
  }
}

function findOthers(leader: number | undefined, mark: string): readonly number[] {
  const parents = new Map<number, number>()
  const found = new Set<number>()
  const groups = new Map<number, number>()
  for (const pid of processIds()) {
    const stat = read(`/proc/${pid}/stat`)
    // The name in parentheses may hold anything, so count from its end: state, parent, group.
    const [state, parent, group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (pid === process.pid || parent === undefined || state === 'Z' || state === 'X') continue
    parents.set(pid, Number(parent))
    groups.set(pid, Number(group))
    if (read(`/proc/${pid}/environ`).includes(`${MARK}=${mark}`)) found.add(pid)
  }
  for (const pid of parents.keys()) if (leader !== undefined && descends(pid, leader, parents)) found.add(pid)
  return [...found].filter((pid) => leader === undefined || groups.get(pid) !== leader)
}

function descends(pid: number, ancestor: number, parents: ReadonlyMap<number, number>): boolean {
  let at: number | undefined = pid
  for (let steps = 0; at !== undefined && steps < 1_000; steps++) {
    if (at === ancestor) return true
    at = parents.get(at)
  }
  return false
}

function processIds(): readonly number[] {
  try {
    return fs.readdirSync('/proc').map(Number).filter(Number.isInteger)
  } catch {
    return []
  }
}

function read(file: string): string {
  try {
    return fs.readFileSync(file, 'latin1')
  } catch {
    return ''
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // Gone, or not ours.
  }
}
