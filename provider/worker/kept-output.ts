/** What is kept of a background process's output: the end of each stream, within a limit of its own and one for all processes together. */
import type { StreamName } from './wire.ts'

/** A piece, and how many bytes of its stream are missing before it. */
export interface KeptPiece {
  readonly stream: StreamName
  readonly bytes: Buffer
  readonly lostBytes: number
}

/** Where a reader stands. */
export interface Cursor {
  sequence: number
  readonly offsets: Record<StreamName, number>
}

/** The kept output of one process. */
export interface KeptOutput {
  readonly push: (stream: StreamName, bytes: Buffer) => void
  /** The next piece, and moves on; undefined at the end of what there is. */
  read(cursor: Cursor): KeptPiece | undefined
  /** Bytes that ever came. */
  written(stream: StreamName): number
  /** Once, at the next change. */
  onChange(listener: () => void): () => void
  /** Wakes readers for the last time. */
  end(): void
  /** Gives its room back. */
  forget(): void
}

/** Bytes that all processes share. */
export interface OutputBudget {
  used: number
  readonly limit: number
}

// What a piece costs beside its bytes, so that single bytes do not add up to a heap of objects.
const PIECE_OVERHEAD = 256
const MIN_OVERHEAD = 64 * 1024

interface Piece {
  readonly sequence: number
  readonly offset: number
  readonly bytes: Buffer
}

/** `limit`: bytes of each stream. */
export function createKeptOutput(limit: number, budget: OutputBudget): KeptOutput {
  const streams = { stdout: createDeque(), stderr: createDeque() }
  const listeners = new Set<() => void>()
  let sequence = 0

  const changed = (): void => {
    const waiting = [...listeners]
    listeners.clear()
    for (const listener of waiting) listener()
  }
  const shed = (stream: StreamName): boolean => {
    const piece = streams[stream].shift()
    if (piece === undefined) return false
    budget.used -= costOf(piece)
    return true
  }

  return {
    push(stream, bytes) {
      const deque = streams[stream]
      // The end is kept, so of a piece beyond the limit only the end counts; a copy, for a slice would hold the whole read.
      const kept = Buffer.from(bytes.subarray(Math.max(0, bytes.length - limit)))
      deque.total += bytes.length
      const piece = { sequence: sequence++, offset: deque.total - kept.length, bytes: kept }
      deque.push(piece)
      budget.used += costOf(piece)
      while ((deque.bytes > limit || deque.overhead > Math.max(limit, MIN_OVERHEAD)) && shed(stream));
      const other = stream === 'stdout' ? 'stderr' : 'stdout'
      while (budget.used > budget.limit && (shed(stream) || shed(other)));
      changed()
    },
    read(cursor) {
      const next = (['stdout', 'stderr'] as const)
        .map((stream) => ({ stream, piece: streams[stream].from(cursor.sequence) }))
        .filter((candidate): candidate is { stream: StreamName; piece: Piece } => candidate.piece !== undefined)
        .sort((a, b) => a.piece.sequence - b.piece.sequence)[0]
      if (next === undefined) return undefined
      const { stream, piece } = next
      const lostBytes = piece.offset - cursor.offsets[stream]
      cursor.sequence = piece.sequence + 1
      cursor.offsets[stream] = piece.offset + piece.bytes.length
      return { stream, bytes: piece.bytes, lostBytes }
    },
    written: (stream) => streams[stream].total,
    onChange(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    end: changed,
    forget() {
      while (shed('stdout') || shed('stderr'));
    },
  }
}

/** A cursor at the beginning. */
export function startCursor(): Cursor {
  return { sequence: 0, offsets: { stdout: 0, stderr: 0 } }
}

function costOf(piece: Piece): number {
  return piece.bytes.length + PIECE_OVERHEAD
}

/** Pieces in order, cheap to shorten at the front; `bytes` and `overhead` are of what is in it, `total` of all that ever was. */
function createDeque() {
  let pieces: (Piece | undefined)[] = []
  let head = 0
  return {
    total: 0,
    bytes: 0,
    overhead: 0,
    push(piece: Piece): void {
      pieces.push(piece)
      this.bytes += piece.bytes.length
      this.overhead += PIECE_OVERHEAD
    },
    shift(): Piece | undefined {
      const piece = pieces[head]
      if (piece === undefined) return undefined
      pieces[head] = undefined
      head += 1
      this.bytes -= piece.bytes.length
      this.overhead -= PIECE_OVERHEAD
      if (head > 1_024 && head * 2 > pieces.length) {
        pieces = pieces.slice(head)
        head = 0
      }
      return piece
    },
    /** The first piece at or after a sequence number. */
    from(sequence: number): Piece | undefined {
      let low = head
      let high = pieces.length
      while (low < high) {
        const middle = (low + high) >> 1
        if ((pieces[middle]?.sequence ?? 0) < sequence) low = middle + 1
        else high = middle
      }
      return pieces[low]
    },
  }
}
