/**
 * Tunnels that a process let out and never closed, because it was killed: found in the files that it left, so that the process that goes on with its log can
 * write their ends down. Reads backwards, file by file, and only as far as a run ended out of order.
 */
import { open, type FileHandle } from 'node:fs/promises'
import { parseLine } from './match.ts'
import type { CloseEntry } from './record.ts'
import type { SegmentFile } from './segments.ts'

/** The action of the line that says that all tunnels of the runs before are closed. */
export const LOST_CLOSED = 'lost_tunnels_closed'

/** The action of the line of a run that ended in order, and before it had closed them all. */
export const LOST_LEFT = 'lost_tunnels_left'

/** What was found. */
export interface LostTunnels {
  /** Their ends: what they carried is not known. */
  readonly closes: readonly CloseEntry[]
  /** Number of the oldest file that was looked at, when there were more than may be. */
  readonly stoppedAt: number | undefined
}

/** Bytes that are looked at: a tunnel that was opened before them is not found. */
const MAX_BYTES = 2 * 1024 ** 3
const CHUNK_BYTES = 1024 * 1024
/** More than the first and the last line of a file take. */
const EDGE_BYTES = 64 * 1024
/** How the run before ended, where it may have left tunnels open. */
const MAY_BE_OPEN = new Set(['unclean', 'missing'])

/**
 * Looks through the files of the runs before. `undefined`: the last one ended in order, and there is nothing to look for.
 * @throws the system's error, or the reason of the signal
 */
export async function findLostTunnels(
  files: readonly SegmentFile[],
  options: { readonly nowMs: () => number; readonly signal: AbortSignal; readonly maxBytes?: number },
): Promise<LostTunnels | undefined> {
  if (await endedInOrder(files)) return undefined
  const nowMs = options.nowMs()
  const found = new Map<string, CloseEntry>()
  const closed = new Set<string>()
  let isDoneBefore = false
  let bytes = 0
  for (const [index, file] of [...files.entries()].toReversed()) {
    if (bytes > (options.maxBytes ?? MAX_BYTES)) return { closes: inOrder(found), stoppedAt: file.number + 1 }
    const opened = new Map<string, string>()
    for await (const line of linesOf(file.path, options.signal)) {
      bytes += line.length
      const [, kind, id] = /^\{[^}]{0,300}?"kind":"(decision|close)","request_id":"([^"]+)"/.exec(line) ?? []
      if (id === undefined) isDoneBefore ||= line.includes(`"action":"${LOST_CLOSED}"`)
      else if (kind === 'close') {
        if (!opened.delete(id)) closed.add(id)
      } else if (wasLetOut(line)) opened.set(id, line)
    }
    for (const [id, line] of opened) {
      const close = closed.delete(id) ? undefined : closeOf(line, nowMs)
      if (close !== undefined) found.set(id, close)
    }
    const first = await adminLineAt(file.path, 'start')
    if (first?.action !== 'start') continue
    if (isDoneBefore) break
    if (!MAY_BE_OPEN.has(first.previous ?? '') && !(await leftSome(files[index - 1]))) break
  }
  return { closes: inOrder(found), stoppedAt: undefined }
}

function inOrder(found: ReadonlyMap<string, CloseEntry>): readonly CloseEntry[] {
  return [...found.values()].sort((one, other) => other.duration_ms - one.duration_ms)
}

/** The last line is that of an orderly end, and its run had nothing to close for one before it. */
async function endedInOrder(files: readonly SegmentFile[]): Promise<boolean> {
  const last = files.at(-1)
  if (last === undefined) return true
  if ((await adminLineAt(last.path, 'end'))?.cause !== 'stop' || (await leftSome(last))) return false
  for (const file of files.toReversed()) {
    const first = await adminLineAt(file.path, 'start')
    if (first?.action === 'start') return !MAY_BE_OPEN.has(first.previous ?? '')
  }
  return true
}

/** Whether the run that ended with this file said that it had not closed them all. */
async function leftSome(last: SegmentFile | undefined): Promise<boolean> {
  if (last === undefined) return false
  return (await edgeOf(last.path, 'end')).some((line) => line.includes(`"action":"${LOST_LEFT}"`))
}

/** A destination that did not answer has no end of its own. */
function wasLetOut(line: string): boolean {
  return line.includes('"effective":"allow"') && !/"reason":"(?:dns|connect)_/.test(line)
}

function closeOf(text: string, nowMs: number): CloseEntry | undefined {
  const line = parseLine(text)
  if (line?.kind !== 'decision') return undefined
  const { request_id, tenant, sandbox, token_id, issuer, key_id, dialect, requested, host, port, client } = line
  return {
    kind: 'close',
    ...{ request_id, tenant, sandbox, token_id, issuer, key_id, dialect, requested, host, port, client },
    policy_version: line.policy_version,
    close_reason: 'process_lost',
    bytes_in: 0,
    bytes_out: 0,
    duration_ms: Math.max(0, nowMs - Date.parse(line.time)),
  }
}

/** The first or the last line of a file, if it is of that kind. */
async function adminLineAt(path: string, edge: 'start' | 'end') {
  const lines = await edgeOf(path, edge)
  const line = parseLine((edge === 'start' ? lines[0] : lines.at(-2)) ?? '')
  return line?.kind === 'admin' ? line : undefined
}

/** The lines at one end of a file; behind the last one is an empty one. */
async function edgeOf(path: string, edge: 'start' | 'end'): Promise<readonly string[]> {
  const file = await open(path, 'r')
  try {
    const from = edge === 'start' ? 0 : Math.max(0, (await file.stat()).size - EDGE_BYTES)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(EDGE_BYTES), 0, EDGE_BYTES, from)
    return buffer.toString('latin1', 0, bytesRead).split('\n')
  } finally {
    await file.close()
  }
}

/** Whole lines alone; between two pieces others have their turn. */
async function* linesOf(path: string, signal: AbortSignal): AsyncGenerator<string> {
  const file: FileHandle = await open(path, 'r')
  try {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
    let rest = ''
    for (;;) {
      signal.throwIfAborted()
      const { bytesRead } = await file.read(chunk, 0, chunk.length, null)
      if (bytesRead === 0) return
      const lines = (rest + chunk.toString('latin1', 0, bytesRead)).split('\n')
      rest = lines.pop() ?? ''
      yield* lines
    }
  } finally {
    await file.close()
  }
}
